// SPDX-License-Identifier: Apache-2.0
#include "sim/demand.h"

#include <algorithm>

#include "sim/alone.h"

namespace plexrl::sim {
namespace {

constexpr std::uint64_t kSampledSteps = 200;
constexpr std::size_t kWorst = kSampledSteps * 95 / 100;

Duration mean_of(const std::vector<std::int64_t>& times) {
  std::int64_t sum = 0;
  for (const std::int64_t ns : times) sum += ns;
  return {sum / static_cast<std::int64_t>(times.size())};
}

Duration worst_of(std::vector<std::int64_t> times) {
  std::nth_element(times.begin(), times.begin() + kWorst, times.end());
  return {times[kWorst]};
}

Duration scaled(Duration time, double scale) {
  return {static_cast<std::int64_t>(static_cast<double>(time.ns) * scale)};
}

Duration positive(std::int64_t ns) { return {std::max<std::int64_t>(ns, 0)}; }

core::RoleDemand role_demand(const Workload& workload, const KindProfile& profile,
                             const JobDraw& job, const RoleSpec& role) {
  const PoolSpec& pool = workload.pools[role.pool];
  const bool rolls = role.kind != RoleKind::kTrain;
  const bool trains = role.kind != RoleKind::kRollout;
  core::RoleDemand demand;
  demand.pool = role.pool;
  demand.gpus = role.gpus;
  demand.max_sharers = role.sharers;
  demand.host_bytes = host_bytes(*job.spec, role);
  const std::int64_t busy = (rolls ? profile.rollout.ns : 0) + (trains ? profile.train.ns : 0);
  const std::int64_t burst =
      (rolls ? profile.rollout_worst.ns : 0) + (trains ? profile.train_worst.ns : 0);
  demand.busy = scaled({busy}, job.scale);
  demand.burst = scaled({burst}, job.scale);
  demand.moves = move_time(pool, role.gpus, role.device_bytes);
  // One side may be late by as much as the other one takes longer, once it runs ahead.
  if (job.spec->lag > 0) {
    const std::int64_t mine = rolls ? profile.rollout_wall.ns : profile.train.ns;
    demand.slack = scaled(positive(profile.step.ns - mine), job.scale);
  }
  demand.rollout_heavy = rolls && profile.rollout.ns * 2 > profile.step.ns;
  return demand;
}

}  // namespace

std::uint64_t host_bytes(const JobSpec& spec, const RoleSpec& role) {
  const auto kv = static_cast<std::uint64_t>(spec.kv_gb * kGb);
  if (role.kind == RoleKind::kRollout) return role.device_bytes + kv;
  const std::uint64_t gradients = role.device_bytes / 4;
  const auto headroom =
      static_cast<std::uint64_t>(static_cast<double>(role.device_bytes) * spec.commit_headroom);
  return role.device_bytes + headroom + gradients + (role.kind == RoleKind::kBoth ? kv : 0);
}

KindProfile profile_of(const Workload& workload, const JobSpec& spec) {
  const JobDraw job{&spec, workload.seed, 0, kSampledSteps, 1};
  std::vector<std::int64_t> rollout, wall, train;
  for (std::uint64_t step = 0; step < kSampledSteps; ++step) {
    StepTimes times = step_times(job, step);
    rollout.push_back(times.turn.ns * spec.turns);
    wall.push_back(rollout.back());
    for (std::uint32_t turn = 1; turn < spec.turns; ++turn)
      wall.back() += next_tool_wait(spec, times).ns;
    train.push_back(times.logprobs.ns + times.train(spec).ns + times.sync.ns);
  }
  KindProfile profile;
  const Layout own = own_layout(workload, spec);
  profile.step = {alone_time(job, own).ns / static_cast<std::int64_t>(kSampledSteps)};
  profile.rollout = mean_of(rollout);
  profile.rollout_worst = worst_of(rollout);
  profile.rollout_wall = mean_of(wall);
  profile.train = mean_of(train);
  profile.train_worst = worst_of(train);
  return profile;
}

core::PlacementJob placement_job(const Workload& workload, const KindProfile& profile,
                                 const JobDraw& job) {
  core::PlacementJob placed;
  placed.id = {job.number};
  placed.step = scaled(profile.step, job.scale);
  placed.step.ns = std::max<std::int64_t>(placed.step.ns, 1);
  placed.expected_run = {placed.step.ns * static_cast<std::int64_t>(job.steps)};
  placed.max_slowdown_permille = static_cast<std::uint32_t>(job.spec->slowdown_bound * 1000);
  for (const RoleSpec& role : roles_of(workload, *job.spec))
    placed.roles.push_back(role_demand(workload, profile, job, role));
  return placed;
}

std::vector<core::PlacementPool> placement_pools(const Workload& workload) {
  std::vector<core::PlacementPool> pools;
  for (const PoolSpec& pool : workload.pools)
    pools.push_back({pool.gpus / pool.gpus_per_node, pool.gpus_per_node,
                     static_cast<std::uint64_t>(pool.host_gb_per_node * kGb)});
  return pools;
}

}  // namespace plexrl::sim
