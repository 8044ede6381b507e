// SPDX-License-Identifier: Apache-2.0
// Connection: one client of plexrld. Reads requests, hands each to the server's handler, sends
// replies; a frame that cannot be understood ends it. Before Hello only small frames are taken.
// Loop thread only.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "base/strong_id.h"
#include "loop/event_loop.h"
#include "plexrl_generated.h"
#include "wire/channel.h"
#include "wire/message.h"
#include "wire/unix_socket.h"

namespace plexrl::api {

class Connection {
 public:
  // Called for each request; the fds came with it. May close the connection (close()).
  using Handler =
      std::function<void(Connection&, wire::MessageT request, std::vector<UniqueFd> fds)>;
  // Called once, from the loop, when the connection is over; the receiver destroys it.
  using Ended = std::function<void(SessionId, const Status& why)>;
  static constexpr std::size_t kMaxOutstanding = 1024;  // requests without a reply

  struct Hooks {
    Handler handle;
    Ended ended;
  };
  Connection(SessionId id, UniqueFd socket, const wire::PeerCredentials& peer,
             loop::EventLoop& loop, Hooks hooks);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] Status start();
  // Its Hello was accepted, with a token or without; see hello_due().
  void greeted() { greeted_ = true; }
  [[nodiscard]] bool is_greeted() const { return greeted_ || closing_; }
  // The time is over. Takes what has come by then, and ends unless there is a Hello in it.
  void hello_due();
  // The peer has proved who it is: larger frames are taken.
  void authenticated(TenantId tenant, std::string client, std::uint32_t max_frame_bytes);
  // Replies once to an outstanding request; other ids are ignored (the client has gone on).
  template <class Body>
  void reply(std::uint64_t request_id, Body body) {
    send(wire::message(request_id, std::move(body)));
  }
  template <class Body>
  void reply_with_fd(std::uint64_t request_id, Body body, UniqueFd fd) {
    std::vector<UniqueFd> fds;
    if (fd) fds.push_back(std::move(fd));
    send(wire::message(request_id, std::move(body)), std::move(fds));
  }
  void fail(std::uint64_t request_id, const Status& status, std::uint32_t retry_after_ms = 0);
  // Ends it in the next turn of the loop.
  void close(const Status& why);

  [[nodiscard]] SessionId id() const { return id_; }
  [[nodiscard]] const wire::PeerCredentials& peer() const { return peer_; }
  [[nodiscard]] TenantId tenant() const { return tenant_; }  // none before Hello with a token
  [[nodiscard]] const std::string& client() const { return client_; }

 private:
  void send(const wire::MessageT& message, std::vector<UniqueFd> fds = {});
  void on_events(std::uint32_t events);
  [[nodiscard]] bool clogged() const;
  void take_frames();
  [[nodiscard]] Status take_frame(wire::Frame frame);
  void update_watch();

  SessionId id_;
  wire::PeerCredentials peer_;
  loop::EventLoop& loop_;
  Hooks hooks_;
  wire::Channel channel_;
  loop::IoWatch watch_;
  TenantId tenant_;
  std::string client_;
  std::set<std::uint64_t> outstanding_;
  bool greeted_ = false;
  bool closing_ = false;
};

}  // namespace plexrl::api
