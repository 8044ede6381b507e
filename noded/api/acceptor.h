// SPDX-License-Identifier: Apache-2.0
// Acceptor: a listening AF_UNIX socket in the loop. Accepts a few connections per turn, so that a
// storm of them does not starve the ops. Without free descriptors or memory it pauses and tries
// again by itself. Loop thread only.
#pragma once

#include <functional>

#include "loop/event_loop.h"

namespace plexrl::api {

class Acceptor {
 public:
  using Taker = std::function<void(UniqueFd)>;
  Acceptor(loop::EventLoop& loop, UniqueFd listener, Taker take)
      : loop_(loop), listener_(std::move(listener)), take_(std::move(take)) {}

  [[nodiscard]] Status start();
  void stop();

 private:
  void accept_ready();
  void pause(const Status& why);
  void go_on();

  loop::EventLoop& loop_;
  UniqueFd listener_;
  Taker take_;
  loop::IoWatch watch_;
  loop::Timer pause_;
  bool paused_ = false;
};

}  // namespace plexrl::api
