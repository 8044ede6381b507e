// SPDX-License-Identifier: Apache-2.0
// The listening TCP socket of plexrld: one that systemd holds, or an own one at a port that no
// ordinary user can take while plexrld is away.
#pragma once

#include "base/unique_fd.h"
#include "config/loopback_address.h"

namespace plexrl::http {

// `passed` is given back when it listens on `address`; without one a socket is made there.
// INVALID_ARGUMENT, PERMISSION, EXISTS: a sentence that says what to do.
[[nodiscard]] Result<UniqueFd> open_tcp_listener(const config::LoopbackAddress& address,
                                                 UniqueFd passed);

}  // namespace plexrl::http
