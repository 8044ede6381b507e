// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace plexrl::worker {

// Whom a reply goes to. Replies to a connection that is gone are dropped.
struct Ticket {
  std::uint64_t connection = 0;
  std::uint64_t request_id = 0;
};

}  // namespace plexrl::worker
