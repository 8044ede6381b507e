// SPDX-License-Identifier: Apache-2.0
// What jobs take when nobody shares with them: the measure of every slowdown and saving.
//
// A job alone follows plain recurrences, so nothing needs to be simulated: rollout k begins when
// rollout k-1 and the training of step k-1-lag are over, training k when rollout k and training
// k-1 are over; each side brings its model in once, at first. A test holds this against the
// simulator.
#pragma once

#include "sim/step_times.h"

namespace plexrl::sim {

// How the job is laid out. `scale` of each side's device times against the workload's.
struct Layout {
  std::uint32_t lag = 0;
  bool one_group = false;  // one model for both sides; rollouts and training take turns
  double rollout_scale = 1;
  double train_scale = 1;
  Duration first_rollout_move{};
  Duration first_train_move{};
  Duration turn_move{};  // from rollouts to training and back, on one group
  std::uint32_t gpus = 0;
};

// As the workload says; the same, split and one step off; and both phases on one set of devices.
[[nodiscard]] Layout own_layout(const Workload& workload, const JobSpec& spec);
[[nodiscard]] Layout split_async_layout(const Workload& workload, const JobSpec& spec);
// Rollouts and training in turn on C devices. Times on other numbers of devices follow verl's
// measurements of 7B DAPO on 32 and 128 H20 (docs/advance/fully_async.md): rollouts take
// (R/C)^0.50, training (T/C)^0.62. C is the least number from T to R + T with which a step is no
// slower than split-async's, or R + T.
[[nodiscard]] Layout colocated_layout(const Workload& workload, const JobSpec& spec);

// Follows one job alone, step by step.
class AloneClock {
 public:
  explicit AloneClock(const Layout& layout) : layout_(layout) {}
  void step(const JobSpec& spec, const StepTimes& times);
  [[nodiscard]] Duration end() const { return {train_end_}; }

 private:
  [[nodiscard]] std::int64_t rollout_time(const JobSpec& spec, const StepTimes& times) const;
  Layout layout_;
  std::uint64_t steps_ = 0;
  std::int64_t rollout_end_ = 0;
  std::int64_t train_end_ = 0;
  std::vector<std::int64_t> train_ends_;  // the last `lag` + 1
};

[[nodiscard]] Duration alone_time(const JobDraw& job, const Layout& layout);
// Of a step, over 200 steps of one job of the kind with scale 1.
[[nodiscard]] Duration mean_step(const JobSpec& spec, std::uint64_t seed, const Layout& layout);

}  // namespace plexrl::sim
