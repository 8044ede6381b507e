// SPDX-License-Identifier: Apache-2.0
#include "sim/workload.h"

#include <algorithm>
#include <cmath>

namespace plexrl::sim {
namespace {

std::uint64_t bytes_of(double billions, double bytes_per_parameter) {
  return static_cast<std::uint64_t>(billions * 1e9 * bytes_per_parameter);
}

// Some minutes of one run, and the memory of what is drawn ahead.
constexpr double kMostSteps = 2e7;

double steps_of_all_jobs(const Workload& workload) {
  double weight = 0;
  double steps = 0;
  for (const JobSpec& job : workload.jobs) {
    weight += job.weight;
    steps += job.weight * job.steps.mean();
  }
  return weight > 0 ? workload.jobs_total * steps / weight : 0;
}

void check_role(const Workload& workload, const JobSpec& job, const RoleSpec& role,
                std::string* errors) {
  const auto complain = [&](const std::string& text) {
    *errors += (errors->empty() ? "" : "\n") + ("jobs." + job.name + ": " + text);
  };
  if (role.pool >= workload.pools.size()) return complain("names a pool that is not there");
  const PoolSpec& pool = workload.pools[role.pool];
  if (role.gpus == 0 || role.gpus > pool.gpus)
    return complain("needs " + std::to_string(role.gpus) + " GPUs of pool " + pool.name +
                    ", which has " + std::to_string(pool.gpus));
  const auto kv = static_cast<std::uint64_t>(job.kv_gb * kGb);
  const std::uint64_t needed = role.device_bytes + (role.kind == RoleKind::kTrain ? 0 : kv);
  if (needed > device_capacity(pool, role.gpus))
    complain("its state does not fit on its devices of pool " + pool.name +
             "; use more of them or less activation_gb");
}

}  // namespace

std::uint32_t Workload::pool_index(const std::string& wanted) const {
  const auto found = std::find_if(pools.begin(), pools.end(),
                                  [&](const PoolSpec& pool) { return pool.name == wanted; });
  return static_cast<std::uint32_t>(found - pools.begin());
}

Duration duration_of(double seconds) { return {static_cast<std::int64_t>(seconds * 1e9)}; }

std::vector<RoleSpec> roles_of(const Workload& workload, const JobSpec& job) {
  const std::uint64_t train = bytes_of(job.parameters_b, job.train_bytes_per_parameter);
  const std::uint64_t rollout = bytes_of(job.parameters_b, job.rollout_bytes_per_parameter);
  const std::uint32_t train_pool = workload.pool_index(job.train_pool);
  if (job.rollout_gpus == 0)
    return {{RoleKind::kBoth, train_pool, job.train_gpus, job.train_sharers, train + rollout}};
  return {{RoleKind::kRollout, workload.pool_index(job.rollout_pool), job.rollout_gpus,
           job.rollout_sharers, rollout},
          {RoleKind::kTrain, train_pool, job.train_gpus, job.train_sharers, train}};
}

Duration move_time(const PoolSpec& pool, std::uint32_t gpus, std::uint64_t bytes) {
  return {duration_of(pool.move_latency_s).ns + copy_time(pool, gpus, bytes).ns};
}

Duration copy_time(const PoolSpec& pool, std::uint32_t gpus, std::uint64_t bytes) {
  return duration_of(static_cast<double>(bytes) / (pool.copy_gb_per_s * kGb * gpus));
}

std::uint64_t device_capacity(const PoolSpec& pool, std::uint32_t gpus) {
  return static_cast<std::uint64_t>((pool.device_gb - pool.activation_gb) * kGb * gpus);
}

Status check_workload(const Workload& workload) {
  std::string errors;
  if (const double steps = steps_of_all_jobs(workload); !(steps <= kMostSteps))
    errors = "jobs_total and steps: about " + std::to_string(std::llround(std::min(steps, 1e15))) +
             " steps of all jobs, at most " + std::to_string(std::llround(kMostSteps)) +
             " are simulated";
  for (const JobSpec& job : workload.jobs) {
    for (const RoleSpec& role : roles_of(workload, job)) check_role(workload, job, role, &errors);
    if (job.rollout_gpus == 0 && job.lag > 0)
      errors += (errors.empty() ? "" : "\n") + ("jobs." + job.name) +
                ": rollouts on the training group cannot run ahead of it: lag must be 0";
  }
  return errors.empty() ? Status() : Status(Code::INVALID_ARGUMENT, errors);
}

}  // namespace plexrl::sim
