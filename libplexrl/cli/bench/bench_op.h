// SPDX-License-Identifier: Apache-2.0
// `plexrl bench op`: what one operation costs in plexrld itself, measured with its fake engine.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/bench/op_load.h"

namespace plexrl::cli {

struct BenchOpOptions {
  std::string plexrld;  // empty: find_plexrld()
  std::uint32_t clients = 64;
  std::uint32_t repeats = 3;            // medians over them are reported
  double seconds = 2;                   // of each measurement
  double open_rate = 2000;              // operations per second of the open loop
  std::uint32_t saturation_depth = 16;  // operations under way per connection
  bool json = false;
};

// One flat row per kind of load: "closed" (one operation under way per connection), "open" (at
// `open_rate`), "saturation". Every row has mode, clients, repeats, seconds, p50_us, p99_us,
// ops_per_s and saturation_ops_per_s, and raw_p50_us, raw_p99_us and raw_ops_per_s: the same load
// on a RawEcho, which is the floor of this machine.
[[nodiscard]] Result<nlohmann::json> bench_op(const BenchOpOptions& options);

// The measurement alone, on a service that is there.
[[nodiscard]] Result<nlohmann::json> measure_op(const client::ConnectTarget& target,
                                                std::uint64_t model, const BenchOpOptions& options);

}  // namespace plexrl::cli
