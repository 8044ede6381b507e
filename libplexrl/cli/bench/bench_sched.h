// SPDX-License-Identifier: Apache-2.0
// `plexrl bench sched`: what a decision costs: a step of the scheduler of one device group, and
// placing a queue of jobs. Runs the daemon's own code in this process; starts nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace plexrl::cli {

struct BenchSchedOptions {
  std::uint32_t tenants = 1000;
  std::uint32_t ops = 10000;  // queued at any time, of all tenants together
  std::uint32_t steps = 50000;
  std::uint32_t jobs = 2000;  // to be placed at once
  std::uint32_t nodes = 256;  // with 8 devices each
  bool json = false;
};

// One row per policy of the scheduler: policy, tenants, ops, steps, step_us_p50, step_us_p99,
// step_us_max; and one per policy of placement: placement, jobs, devices, placed, placement_ms.
[[nodiscard]] Result<nlohmann::json> bench_sched(const BenchSchedOptions& options);

}  // namespace plexrl::cli
