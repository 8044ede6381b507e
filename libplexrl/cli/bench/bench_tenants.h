// SPDX-License-Identifier: Apache-2.0
// `plexrl bench tenants`: many LoRA tasks on one base, with waits for their environments: one after
// the other, the same with the next rollout beside the training, and all together.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

struct BenchTenantsOptions {
  std::string plexrld;         // empty: find_plexrld()
  std::string model = "tiny";  // as bench decode names them
  std::uint32_t tenants = 32;
  std::uint32_t alone = 4;  // tasks that are run one after the other, for all of them
  std::uint32_t steps = 8;  // of each task
  std::uint32_t prompts = 4, samples = 4;
  std::vector<double> duties = {0.10, 0.15, 0.3, 0.6, 1.0};
  std::string policy = "least-slowdown";
  bool json = false;
};

// One flat row per duty: what share of its time a task keeps the device busy that runs alone; 1: as
// much as it can, without waits. The fields are those of plexrl(1). The waits of a step are drawn
// log-normally, with half of their mean as standard deviation.
[[nodiscard]] Result<nlohmann::json> bench_tenants(const BenchTenantsOptions& options);

}  // namespace plexrl::cli
