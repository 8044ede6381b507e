// SPDX-License-Identifier: Apache-2.0
// `plexrl bench swap`: what moving state between the tiers costs, beside a raw copy of the same
// bytes in the same run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

struct BenchSwapOptions {
  // Largest segment; smaller when the machine has not the memory, which is said on stderr.
  std::uint64_t max_mib = 4096;
  bool json = false;
};

// Flat rows, one per path ("device-host", "host-device") and size, with path, bytes, repeats, gbps,
// raw_gbps, ratio and huge_pages (the share of the pools' memory that huge pages hold).
[[nodiscard]] Result<nlohmann::json> bench_swap(const BenchSwapOptions& options);

// 1 MiB, 4 MiB, ... up to `max_bytes`.
[[nodiscard]] std::vector<std::uint64_t> swap_sizes(std::uint64_t max_bytes);

}  // namespace plexrl::cli
