// SPDX-License-Identifier: Apache-2.0
// AF_UNIX stream sockets at file system paths. All descriptors are close-on-exec; those that are
// returned by listen and accept are non-blocking.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::wire {

struct PeerCredentials {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
};

// Binds and listens. A socket file that nobody serves is replaced; EXISTS when somebody does or
// when the path is something else. The mode is set before the first connection can be made.
[[nodiscard]] Result<UniqueFd> listen_unix(const std::string& path, mode_t mode, int backlog = 128);
// One connection from the backlog. BUSY when there is none or no descriptor is free.
[[nodiscard]] Result<UniqueFd> accept_unix(int listener);
// Connects; waits for room in the listener's backlog until `deadline`. UNAVAILABLE when nobody
// listens there, PERMISSION, TIMEOUT, INVALID_ARGUMENT (the path is too long for a socket).
[[nodiscard]] Result<UniqueFd> connect_unix(const std::string& path, TimePoint deadline);
// Who the kernel says is at the other end (as of its connect).
[[nodiscard]] Result<PeerCredentials> peer_credentials(int socket);

}  // namespace plexrl::wire
