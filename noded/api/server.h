// SPDX-License-Identifier: Apache-2.0
// Server: the listening socket and its connections. Accepts once plexrld is ready; until then
// connections wait in the kernel's queue. Bounds: connections in all, of which users get seven
// eighths and each uid half, so that they cannot lock out root's hooks; the time from the accept to
// a Hello, whatever else the peer sends meanwhile. Loop thread only.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "api/acceptor.h"
#include "api/connection.h"

namespace plexrl::api {

class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  virtual void handle(Connection& connection, wire::MessageT request,
                      std::vector<UniqueFd> fds) = 0;
  virtual void closed(SessionId session) = 0;
};

struct ServerCounts {
  std::size_t connections = 0;
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;          // over a bound
  std::uint64_t protocol_errors = 0;  // connections that were closed for what they sent
};

class Server {
 public:
  // A client says hello in the same breath as it connects; a node under load may make it wait.
  static constexpr Duration kHelloTime{10 * kSecond.ns};

  Server(loop::EventLoop& loop, UniqueFd listener, std::size_t max_connections,
         RequestHandler& handler, Duration hello_time = kHelloTime)
      : loop_(loop),
        acceptor_(loop, std::move(listener), [this](UniqueFd socket) { take(std::move(socket)); }),
        max_connections_(max_connections),
        handler_(handler),
        hello_time_(hello_time) {}

  [[nodiscard]] Status start();  // begins to accept
  void stop_accepting() { acceptor_.stop(); }
  void close_tenant(TenantId tenant);
  [[nodiscard]] std::set<TenantId> connected() const;
  [[nodiscard]] std::size_t connections_of(TenantId tenant) const;
  // The connection, unless it has ended meanwhile.
  [[nodiscard]] Connection* find(SessionId session);
  [[nodiscard]] ServerCounts counts() const;

 private:
  void take(UniqueFd socket);
  [[nodiscard]] bool admit(const wire::PeerCredentials& peer);
  void ended(SessionId session, const Status& why);
  void close_silent();

  loop::EventLoop& loop_;
  Acceptor acceptor_;
  std::size_t max_connections_;
  RequestHandler& handler_;
  Duration hello_time_;
  loop::Timer hello_timer_;
  std::map<SessionId, TimePoint> silent_;  // until when they may be; of live connections
  std::map<SessionId, std::unique_ptr<Connection>> connections_;
  std::map<uid_t, std::size_t> per_uid_;
  std::uint64_t next_session_ = 1;
  ServerCounts counts_;
};

}  // namespace plexrl::api
