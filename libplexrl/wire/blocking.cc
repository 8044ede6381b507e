// SPDX-License-Identifier: Apache-2.0
#include "wire/blocking.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace plexrl::wire {
namespace {

Status wait_for(int fd, short events, TimePoint deadline) {
  while (true) {
    pollfd p{fd, events, 0};
    const int rc = ::poll(&p, 1, poll_timeout_ms(deadline, system_clock().now()));
    if (rc > 0) return {};
    if (rc < 0 && errno != EINTR) return errno_error(Code::IO, errno, "poll");
    if (system_clock().now() >= deadline)
      return error(Code::TIMEOUT, "no answer from the service within the deadline");
  }
}

}  // namespace

int poll_timeout_ms(TimePoint deadline, TimePoint now) noexcept {
  if (deadline <= now) return 0;
  const std::int64_t ms = ((deadline - now).ns - 1) / kMillisecond.ns + 1;
  return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

Status send_until(Channel& channel, flatbuffers::DetachedBuffer payload, std::vector<UniqueFd> fds,
                  TimePoint deadline) {
  PLEXRL_TRY(channel.send(std::move(payload), std::move(fds)));
  while (channel.wants_write()) {
    PLEXRL_TRY(wait_for(channel.fd(), POLLOUT, deadline));
    PLEXRL_TRY(channel.flush());
  }
  return {};
}

Result<Frame> receive_until(Channel& channel, TimePoint deadline) {
  while (true) {
    if (std::optional<Frame> frame = channel.next()) return std::move(*frame);
    PLEXRL_TRY(channel.failure());
    PLEXRL_TRY(wait_for(channel.fd(), POLLIN, deadline));
    // An error is seen as failure() once the frames that came before it are taken.
    static_cast<void>(channel.receive());
  }
}

}  // namespace plexrl::wire
