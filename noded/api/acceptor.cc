// SPDX-License-Identifier: Apache-2.0
#include "api/acceptor.h"

#include <sys/epoll.h>

#include "base/log.h"
#include "wire/unix_socket.h"

namespace plexrl::api {
namespace {

constexpr int kAcceptBatch = 16;
// The listener stays readable while no descriptor is free for the connection that waits, so
// watching it on would only burn time.
constexpr Duration kPause{100 * kMillisecond.ns};

}  // namespace

Status Acceptor::start() {
  PLEXRL_ASSIGN(
      watch_, loop_.watch_io(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_ready(); }));
  PLEXRL_ASSIGN(pause_, loop_.make_timer([this] { go_on(); }));
  return {};
}

void Acceptor::stop() {
  watch_.reset();
  pause_.reset();
}

void Acceptor::pause(const Status& why) {
  watch_.set_events(0);
  pause_.arm(system_clock().now() + kPause);
  if (!paused_)
    PLEXRL_LOG(kError, "%s; new connections wait (see LimitNOFILE)", why.to_string().c_str());
  paused_ = true;
}

void Acceptor::go_on() {
  watch_.set_events(EPOLLIN);
  accept_ready();
}

void Acceptor::accept_ready() {
  for (int i = 0; i < kAcceptBatch; ++i) {
    auto socket = wire::accept_unix(listener_.get());
    if (!socket) {
      if (socket.error().code() != Code::BUSY) pause(socket.error());
      return;
    }
    paused_ = false;
    take_(*std::move(socket));
  }
}

}  // namespace plexrl::api
