// SPDX-License-Identifier: Apache-2.0
// Switches between two full-parameter models, measured in a plexrld with real engines whose device
// holds only one of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

// Medians over `repeats` switches. After each the model makes a training step of one short
// sequence.
struct SwitchCost {
  std::string from, to;     // sizes of the models, "15M"
  std::uint64_t bytes = 0;  // that had to move: the one's changes out, the other's state in
  std::uint32_t repeats = 0;
  double exposed_s = 0;       // nothing ran, and the step waited
  double hidden_s = 0;        // moves under a running op
  double raw_copy_s = 0;      // of as many bytes, in turns with the switches
  double commit_stall_s = 0;  // the step waited for the copy of a commit
  double step_s = 0;          // running time of the step's ops
  [[nodiscard]] double exposed_ratio() const { return raw_copy_s > 0 ? exposed_s / raw_copy_s : 0; }
};

// Needs root, plexrl-engine beside `plexrld` or in the libexec of its prefix, and
// switch_memory_bytes() of memory.
[[nodiscard]] Result<std::vector<SwitchCost>> measure_switches(const std::string& plexrld,
                                                               std::uint32_t repeats);
[[nodiscard]] std::uint64_t switch_memory_bytes();

}  // namespace plexrl::cli
