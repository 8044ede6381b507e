// SPDX-License-Identifier: Apache-2.0
#include "sim/alone.h"

#include <algorithm>
#include <cmath>

namespace plexrl::sim {
namespace {

constexpr double kRolloutExponent = 0.50;  // ln(357.4 / 177.9) / ln 4
constexpr double kTrainExponent = 0.62;    // ln(269.8 / 113.8) / ln 4
constexpr std::uint64_t kSampledSteps = 200;
constexpr std::uint64_t kSampledJob = 0;  // no job of a run has this number

std::int64_t scaled(Duration time, double scale) {
  return scale == 1 ? time.ns : static_cast<std::int64_t>(static_cast<double>(time.ns) * scale);
}

// On `gpus` devices for both phases, from times on R and T devices.
Layout layout_on(const Workload& workload, const JobSpec& spec, std::uint32_t gpus) {
  const auto roles = roles_of(workload, spec);
  const PoolSpec& pool = workload.pools[roles.back().pool];
  std::uint64_t bytes = 0;
  for (const RoleSpec& role : roles) bytes += role.device_bytes;
  Layout layout;
  layout.one_group = true;
  layout.gpus = gpus;
  layout.first_rollout_move = move_time(pool, gpus, bytes);
  if (spec.rollout_gpus == 0) return layout;
  layout.rollout_scale = std::pow(static_cast<double>(spec.rollout_gpus) / gpus, kRolloutExponent);
  layout.train_scale = std::pow(static_cast<double>(spec.train_gpus) / gpus, kTrainExponent);
  layout.turn_move = move_time(pool, gpus, roles.front().device_bytes);
  return layout;
}

}  // namespace

Layout own_layout(const Workload& workload, const JobSpec& spec) {
  if (spec.rollout_gpus == 0) return layout_on(workload, spec, spec.train_gpus);
  const auto roles = roles_of(workload, spec);
  Layout layout;
  layout.lag = spec.lag;
  layout.gpus = spec.rollout_gpus + spec.train_gpus;
  layout.first_rollout_move =
      move_time(workload.pools[roles[0].pool], roles[0].gpus, roles[0].device_bytes);
  layout.first_train_move =
      move_time(workload.pools[roles[1].pool], roles[1].gpus, roles[1].device_bytes);
  return layout;
}

Layout split_async_layout(const Workload& workload, const JobSpec& spec) {
  Layout layout = own_layout(workload, spec);
  if (!layout.one_group) layout.lag = 1;
  return layout;
}

Layout colocated_layout(const Workload& workload, const JobSpec& spec) {
  if (spec.rollout_gpus == 0) return own_layout(workload, spec);
  const Duration target = mean_step(spec, workload.seed, split_async_layout(workload, spec));
  const std::uint32_t most = spec.rollout_gpus + spec.train_gpus;
  for (std::uint32_t gpus = spec.train_gpus; gpus < most; ++gpus) {
    const Layout layout = layout_on(workload, spec, gpus);
    if (mean_step(spec, workload.seed, layout) <= target) return layout;
  }
  return layout_on(workload, spec, most);
}

std::int64_t AloneClock::rollout_time(const JobSpec& spec, const StepTimes& times) const {
  std::int64_t ns = scaled(times.turn, layout_.rollout_scale) * spec.turns;
  StepTimes tools = times;
  for (std::uint32_t turn = 1; turn < spec.turns; ++turn) ns += next_tool_wait(spec, tools).ns;
  return ns;
}

void AloneClock::step(const JobSpec& spec, const StepTimes& times) {
  const bool first = steps_ == 0;
  const std::int64_t train = scaled(times.logprobs, layout_.train_scale) +
                             scaled(times.train(spec), layout_.train_scale) + times.sync.ns;
  std::int64_t start = rollout_end_;
  if (steps_ > layout_.lag)
    start = std::max(start, train_ends_[(steps_ - 1 - layout_.lag) % (layout_.lag + 1)]);
  rollout_end_ = start + (first ? layout_.first_rollout_move.ns : layout_.turn_move.ns) +
                 rollout_time(spec, times);
  train_end_ = std::max(rollout_end_, train_end_) +
               (first && !layout_.one_group ? layout_.first_train_move.ns : layout_.turn_move.ns) +
               train;
  train_ends_.resize(layout_.lag + 1);
  train_ends_[steps_ % (layout_.lag + 1)] = train_end_;
  ++steps_;
}

Duration alone_time(const JobDraw& job, const Layout& layout) {
  AloneClock clock(layout);
  for (std::uint64_t step = 0; step < job.steps; ++step)
    clock.step(*job.spec, step_times(job, step));
  return clock.end();
}

Duration mean_step(const JobSpec& spec, std::uint64_t seed, const Layout& layout) {
  JobDraw job{&spec, seed, kSampledJob, kSampledSteps, spec.scale.mean()};
  return {alone_time(job, layout).ns / static_cast<std::int64_t>(kSampledSteps)};
}

}  // namespace plexrl::sim
