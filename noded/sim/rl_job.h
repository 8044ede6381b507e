// SPDX-License-Identifier: Apache-2.0
// RlJob: rollout (turns with tool waits between them), log-probs, training, weight sync; rollouts
// run up to `lag` steps ahead of training.
#pragma once

#include "sim/sim_job.h"
#include "sim/step_times.h"

namespace plexrl::sim {

class RlJob final : public SimJob {
 public:
  // `host` and the kind of job outlive it. `two_sides`: rollouts have a group of their own.
  RlJob(const JobDraw& job, bool two_sides, JobHost* host);

  void start() override { advance(); }
  void op_finished(std::uint64_t token) override;
  void waited(std::uint64_t token) override;
  [[nodiscard]] bool done() const override { return trained_ == job_.steps; }

 private:
  void advance();
  void begin_rollout();
  void submit_turn();
  void begin_training();
  void submit_training();

  JobDraw job_;
  bool two_sides_;
  JobHost* host_;
  std::uint64_t rolled_ = 0;
  std::uint64_t trained_ = 0;
  bool rolling_ = false;
  bool training_ = false;
  StepTimes rollout_;
  StepTimes training_times_;
  std::uint32_t turns_left_ = 0;
  std::uint32_t ops_left_ = 0;
};

}  // namespace plexrl::sim
