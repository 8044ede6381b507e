// SPDX-License-Identifier: Apache-2.0
// PoolMemory: brings the memory of a pool in, when the service starts: every page allocated,
// cleared, in huge pages where the kernel has them, on its NUMA node, by several threads on that
// node. Later mappings then find everything there.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "device/numa.h"

namespace plexrl::device {

// A piece of a pool for one thread. The first and the last of a range may be smaller.
struct PoolSlice {
  std::size_t at = 0;
  std::size_t bytes = 0;
  std::size_t node = 0;  // index in the list of nodes
};
// At most kMaxThreadsPerNode slices per range and no more than the node has CPUs (of which one
// without any counts as having one), cut where huge pages begin.
constexpr std::size_t kMaxThreadsPerNode = 8;
[[nodiscard]] std::vector<PoolSlice> slices_of(const std::vector<NumaRange>& ranges,
                                               const std::vector<NumaNode>& nodes,
                                               std::size_t chunk_bytes);

// `fd`: a memfd of chunk_bytes * chunk_count bytes or more. NO_CAPACITY when the machine or the
// control group has no room. What can only cost speed (no huge pages, a node that cannot be chosen)
// is logged.
[[nodiscard]] Status bring_in(const char* name, int fd, std::size_t chunk_bytes,
                              std::size_t chunk_count);

}  // namespace plexrl::device
