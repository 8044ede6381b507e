// SPDX-License-Identifier: Apache-2.0
// StepTimes: what one step of one job takes on the devices. A function of the seed, the job's
// number and the step, so that the job meets the same times in every run, shared or alone.
#pragma once

#include "sim/workload.h"

namespace plexrl::sim {

// One job of a kind.
struct JobDraw {
  const JobSpec* spec = nullptr;
  std::uint64_t seed = 0;
  std::uint64_t number = 0;  // of the job, from 1
  std::uint64_t steps = 1;
  double scale = 1;  // of its rollouts, log-probs and training
};
// Draws steps and scale.
[[nodiscard]] JobDraw draw_job(const JobSpec& spec, std::uint64_t seed, std::uint64_t number);

struct StepTimes {
  Duration turn{};      // each of spec.turns
  Duration logprobs{};  // 0: there is none
  Duration forward{};   // each of spec.train_ops
  Duration optim{};
  Duration sync{};  // 0: there is none
  Draws tools;      // the tool waits, in order

  [[nodiscard]] Duration train(const JobSpec& spec) const {
    return {forward.ns * spec.train_ops + optim.ns};
  }
};
[[nodiscard]] StepTimes step_times(const JobDraw& job, std::uint64_t step);
[[nodiscard]] Duration next_tool_wait(const JobSpec& spec, StepTimes& times);

}  // namespace plexrl::sim
