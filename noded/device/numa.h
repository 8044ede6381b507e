// SPDX-License-Identifier: Apache-2.0
// NUMA: where the parts of a pool lie. A pool is one memfd; its chunks are dealt out to the
// machine's nodes in ranges, the nodes next to the device first. plexrld hands out the lowest free
// chunk numbers first, so state lies next to the device while there is room (doc/adr/0006).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::device {

struct NumaNode {
  unsigned number = 0;  // of the operating system
  std::uint64_t memory_bytes = 0;
  std::vector<unsigned> cpus;  // may be none
};

// The nodes that have memory: those next to a GPU first, then by number. By hwloc, within what this
// process may use. INTERNAL when hwloc cannot read the machine.
[[nodiscard]] Result<std::vector<NumaNode>> numa_nodes();
// Of a machine described in hwloc's XML; for tests.
[[nodiscard]] Result<std::vector<NumaNode>> numa_nodes_of(const std::string& xml);

struct NumaRange {
  std::size_t first_chunk = 0;
  std::size_t chunks = 0;
  std::size_t node = 0;  // index in the list of nodes
};
// Ranges one after the other that make `chunks`, in the order of the nodes and in proportion to
// their memory, none empty. At least one node.
[[nodiscard]] std::vector<NumaRange> deal_out(std::size_t chunks,
                                              const std::vector<NumaNode>& nodes);

// Memory of the shared mapping [at, at + bytes) shall come from the node. For all that map the same
// file, and as long as it lives. IO when the kernel refuses.
[[nodiscard]] Status place_on(const NumaNode& node, std::byte* at, std::size_t bytes);
// The calling thread runs on the node's CPUs from now on; false when it may not.
bool run_on(const NumaNode& node);

}  // namespace plexrl::device
