// SPDX-License-Identifier: Apache-2.0
// Blocking use of a Channel with deadlines, for programs without an event loop. No threads.
#pragma once

#include "base/clock.h"
#include "wire/channel.h"

namespace plexrl::wire {

// Sends everything that is queued, this payload included. TIMEOUT, or the channel's error.
[[nodiscard]] Status send_until(Channel& channel, flatbuffers::DetachedBuffer payload,
                                std::vector<UniqueFd> fds, TimePoint deadline);
// The next frame. TIMEOUT, or the channel's error.
[[nodiscard]] Result<Frame> receive_until(Channel& channel, TimePoint deadline);
// Milliseconds for poll(2), rounded up, 0 when past.
[[nodiscard]] int poll_timeout_ms(TimePoint deadline, TimePoint now) noexcept;

}  // namespace plexrl::wire
