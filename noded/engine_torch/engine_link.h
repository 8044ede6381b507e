// SPDX-License-Identifier: Apache-2.0
// EngineLink: the engine's end of the connection to plexrld. Accepts one connection at a time, of
// this process's own uid; whatever a peer does ends its connection only. Protocol thread.
#pragma once

#include <poll.h>

#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "engine_generated.h"
#include "engine_torch/ticket.h"
#include "wire/channel.h"

namespace plexrl::worker {

class EngineLink {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void on_request(const Ticket& ticket, wire::EngineBodyUnion body,
                            std::vector<UniqueFd> fds) = 0;
    virtual void on_disconnected() = 0;
  };

  EngineLink(UniqueFd listener, Handler& handler)
      : listener_(std::move(listener)), handler_(handler) {}

  // Accepts when there is room. A new connection gets nothing and is not read until greet().
  [[nodiscard]] bool waits_for_hello() const noexcept { return channel_ && !greeted_; }
  void greet(wire::EngineHelloT hello, std::vector<UniqueFd> fds);
  void refuse(const Status& why) { drop(why); }
  void reply(const Ticket& ticket, wire::EngineBodyUnion body);

  [[nodiscard]] bool connected() const noexcept { return channel_.has_value(); }
  [[nodiscard]] bool flushed() const noexcept { return !channel_ || !channel_->wants_write(); }
  [[nodiscard]] pollfd poll_request() const noexcept;
  void handle(short revents);

 private:
  void accept();
  void read();
  void serve(wire::Frame frame);
  void send(const wire::EngineMessageT& message, std::vector<UniqueFd> fds);
  void drop(const Status& why);

  UniqueFd listener_;
  Handler& handler_;
  std::optional<wire::Channel> channel_;
  std::uint64_t connection_ = 0;  // number of the present or last one
  bool greeted_ = false;
};

}  // namespace plexrl::worker
