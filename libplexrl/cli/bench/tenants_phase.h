// SPDX-License-Identifier: Apache-2.0
// A phase of `plexrl bench tenants`: a plexrld of its own, and LoRA GRPO tasks on one base, each
// `plexrl train` in a job of its own, one after the other or all together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/bench/bench_model.h"

namespace plexrl::cli {

struct TenantsSite {
  std::string plexrld;
  std::string plexrl;  // for `plexrl train`
  BenchModel model;
  std::string policy;
  std::uint32_t tenants = 0;  // that the pools have room for
  std::uint32_t steps = 0, prompts = 0, samples = 0;
  std::uint32_t lora_rank = 8;
};

struct TenantsPhase {
  std::uint32_t tasks = 1;  // seeds 1 to `tasks`
  bool together = false;
  double wait_s = 0;  // for the environment, in each step: mean and standard deviation
  double wait_sd_s = 0;
  std::uint32_t staleness = 0;
};

struct PhaseResult {
  double wall_s = 0;            // of all tasks; the base was there before
  double busy_s = 0;            // of that an op executed
  double train_s = 0;           // sum of what the tasks say of their steps
  std::vector<double> rewards;  // mean over the steps of each task, by seed
  [[nodiscard]] double utilisation() const { return wall_s > 0 ? busy_s / wall_s : 0; }
};

// A model that answers the tasks' problems now and then, so that there are rewards: this one after
// a supervised start, in `folder`. Root only.
[[nodiscard]] Result<BenchModel> teach(const TenantsSite& site, const std::string& folder);

// Root only. What a task says goes to a file that is quoted when it fails.
[[nodiscard]] Result<PhaseResult> run_phase(const TenantsSite& site, const TenantsPhase& phase);

}  // namespace plexrl::cli
