// SPDX-License-Identifier: Apache-2.0
// What the placement is told of a job: as plexrld would know it from earlier runs of the same job.
#pragma once

#include "sim/step_times.h"

namespace plexrl::sim {

// Of one kind of job with scale 1; worked out once per kind.
struct KindProfile {
  Duration step{};
  Duration rollout{};        // device time per step
  Duration rollout_worst{};  // 95 of 100 steps take at most this
  Duration rollout_wall{};   // with tool waits
  Duration train{};          // log-probs, training, weight sync
  Duration train_worst{};
};
[[nodiscard]] KindProfile profile_of(const Workload& workload, const JobSpec& spec);

[[nodiscard]] core::PlacementJob placement_job(const Workload& workload, const KindProfile& profile,
                                               const JobDraw& job);
[[nodiscard]] std::vector<core::PlacementPool> placement_pools(const Workload& workload);
// Host memory for a role's parked state, as plexrld grants it (slurm/host_memory.h): the state, the
// headroom of a commit, and gradients.
[[nodiscard]] std::uint64_t host_bytes(const JobSpec& spec, const RoleSpec& role);

}  // namespace plexrl::sim
