// SPDX-License-Identifier: Apache-2.0
// Machine: what `plexrl config slurm` must know of a pool node, by hwloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::config {

struct Core {
  std::vector<unsigned> cpus;  // numbers of the operating system, of all its threads
};

struct Machine {
  std::vector<Core> cores;  // in hwloc's logical order, which is the order of Slurm's core numbers
  std::uint32_t sockets = 1;
  std::uint64_t memory_mib = 0;
};

// This machine. INTERNAL when hwloc cannot read it.
[[nodiscard]] Result<Machine> detect_machine();

// "0-2,5" of sorted or unsorted numbers.
[[nodiscard]] std::string number_list(std::vector<unsigned> numbers);

}  // namespace plexrl::config
