// SPDX-License-Identifier: Apache-2.0
// Pools: the two pool memfds of a node and which ones they are. An engine that was away may come
// back with pools of the same size that are not the node's any more.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "state/state_manager.h"

namespace plexrl::runtime {

// device is empty on backends that have none.
struct Pools {
  UniqueFd device;
  UniqueFd host;
  state::PoolSizes sizes;
  std::string identity;  // as of pool_identity
};

// Names the files behind device and host pool, for comparing and for the store: "dev:inode
// dev:inode". Good for one boot and while somebody has the pools open. IO when a descriptor cannot
// be looked at.
[[nodiscard]] Result<std::string> pool_identity(int device, int host);
// Of what an engine sent with its hello: device and host pool, or a host pool alone. Empty for
// anything else.
[[nodiscard]] std::string held_identity(std::span<const UniqueFd> fds);

}  // namespace plexrl::runtime
