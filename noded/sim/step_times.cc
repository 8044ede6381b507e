// SPDX-License-Identifier: Apache-2.0
#include "sim/step_times.h"

#include <algorithm>
#include <cmath>

namespace plexrl::sim {
namespace {

// Of a training phase; the rest are its forward_backward calls. Assumed: the step is bound by
// memory bandwidth and touches each parameter once.
constexpr double kOptimShare = 0.05;
constexpr double kMaxSteps = 1e6;

}  // namespace

JobDraw draw_job(const JobSpec& spec, std::uint64_t seed, std::uint64_t number) {
  Draws steps(seed, number, DrawFor::kSteps);
  Draws scale(seed, number, DrawFor::kScale);
  const double count = std::clamp(std::round(spec.steps.draw(steps)), 1.0, kMaxSteps);
  return {&spec, seed, number, static_cast<std::uint64_t>(count), spec.scale.draw(scale)};
}

StepTimes step_times(const JobDraw& job, std::uint64_t step) {
  const JobSpec& spec = *job.spec;
  Draws draws(job.seed, job.number, DrawFor::kStep, step);
  const double rollout = spec.rollout_s.draw(draws) * job.scale;
  const double logprobs = spec.logprobs_s.draw(draws) * job.scale;
  const double train = spec.train_s.draw(draws) * job.scale;
  const Duration sync = duration_of(spec.sync_s.draw(draws));
  return {duration_of(rollout / spec.turns),
          duration_of(logprobs),
          duration_of(train * (1 - kOptimShare) / spec.train_ops),
          duration_of(train * kOptimShare),
          sync,
          draws};
}

Duration next_tool_wait(const JobSpec& spec, StepTimes& times) {
  return duration_of(spec.tool_s.draw(times.tools));
}

}  // namespace plexrl::sim
