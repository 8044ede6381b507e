// SPDX-License-Identifier: Apache-2.0
// `plexrl bench swap`: what moving state between the tiers costs, beside a raw copy of the same
// bytes in the same run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

struct BenchSwapOptions {
  // Largest segment; smaller when the machine has not the memory, which is said on stderr.
  std::uint64_t max_mib = 4096;
  std::string directory;  // for the disk's files; empty: the system's for temporary files
  bool disk = true;
  bool switches = true;
  std::uint32_t switch_repeats = 5;  // each way
  std::string plexrld;               // empty: find_plexrld()
  bool json = false;
};

// Flat rows. One per path "device-host", "host-device", "host-disk", "disk-host" and size: path,
// bytes, repeats, gbps, raw_gbps, ratio, and huge_pages (the share of the pools' memory that huge
// pages hold) or method (how the disk is written). Two of path "switch": from, to, bytes, repeats,
// switch_exposed_s, switch_hidden_s, raw_copy_s, exposed_ratio, commit_stall_s, step_s. What cannot
// be measured here is left out, with a sentence on stderr.
[[nodiscard]] Result<nlohmann::json> bench_swap(const BenchSwapOptions& options);

// 1 MiB, 4 MiB, ... up to `max_bytes`.
[[nodiscard]] std::vector<std::uint64_t> swap_sizes(std::uint64_t max_bytes);

}  // namespace plexrl::cli
