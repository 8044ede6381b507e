// SPDX-License-Identifier: Apache-2.0
// ScriptJob: the ops of a recorded job, each a time after the end of an earlier one. What
// overlapped when it was recorded may overlap again.
#pragma once

#include <vector>

#include "sim/sim_job.h"

namespace plexrl::sim {

struct ScriptOp {
  core::OpKind kind = core::OpKind::kNone;
  std::uint32_t after = 0;  // number of the op, from 1, that must have ended; 0: the job's start
  Duration think{};         // from then to the arrival
  Duration time{};          // on the device
  std::uint64_t kv_bytes = 0;
};

class ScriptJob final : public SimJob {
 public:
  // Every `after` is below the op's own number. `host` outlives the job.
  ScriptJob(std::uint64_t number, std::vector<ScriptOp> ops, JobHost* host);

  void start() override { begin_after(0); }
  void op_finished(std::uint64_t token) override;
  void waited(std::uint64_t token) override;
  [[nodiscard]] bool done() const override { return finished_ == ops_.size(); }

 private:
  void begin_after(std::uint32_t number);

  std::uint64_t number_;
  std::vector<ScriptOp> ops_;
  std::vector<std::vector<std::uint32_t>> followers_;  // by the number that they wait for
  JobHost* host_;
  std::size_t finished_ = 0;
};

// The job's time alone, when its model takes `first_move` to come in: one op runs at a time,
// training before log-probs before rollouts, each kind in the order of arrival.
[[nodiscard]] Duration script_alone_time(const std::vector<ScriptOp>& ops, Duration first_move);

}  // namespace plexrl::sim
