// SPDX-License-Identifier: Apache-2.0
#include "sim/rl_job.h"

namespace plexrl::sim {
namespace {

using core::OpKind;

enum Token : std::uint64_t { kTurn, kLogprobs, kTrain, kTool };

}  // namespace

RlJob::RlJob(const JobDraw& job, bool two_sides, JobHost* host)
    : job_(job),
      two_sides_(two_sides),
      host_(host),
      rollout_(step_times(job, 0)),
      training_times_(rollout_) {}

void RlJob::advance() {
  if (!rolling_ && rolled_ < job_.steps && rolled_ <= trained_ + job_.spec->lag) begin_rollout();
  if (!training_ && rolled_ > trained_) begin_training();
}

void RlJob::begin_rollout() {
  rolling_ = true;
  rollout_ = step_times(job_, rolled_);
  turns_left_ = job_.spec->turns;
  submit_turn();
}

void RlJob::submit_turn() {
  --turns_left_;
  host_->submit(job_.number, 0, OpKind::kGenerate, rollout_.turn,
                static_cast<std::uint64_t>(job_.spec->kv_gb * kGb), kTurn);
}

void RlJob::begin_training() {
  training_ = true;
  training_times_ = step_times(job_, trained_);
  if (training_times_.logprobs.ns == 0) return submit_training();
  host_->submit(job_.number, two_sides_ ? 1 : 0, OpKind::kLogprobs, training_times_.logprobs, 0,
                kLogprobs);
}

// All at once, so that they wait in the service's queue and not for the client.
void RlJob::submit_training() {
  const std::size_t side = two_sides_ ? 1 : 0;
  ops_left_ = job_.spec->train_ops + 1 + (training_times_.sync.ns > 0 ? 1 : 0);
  for (std::uint32_t n = 0; n < job_.spec->train_ops; ++n)
    host_->submit(job_.number, side, OpKind::kForwardBackward, training_times_.forward, 0, kTrain);
  host_->submit(job_.number, side, OpKind::kOptimStep, training_times_.optim, 0, kTrain);
  if (training_times_.sync.ns > 0)
    host_->submit(job_.number, side, OpKind::kSave, training_times_.sync, 0, kTrain);
}

void RlJob::op_finished(std::uint64_t token) {
  if (token == kLogprobs) return submit_training();
  if (token == kTrain) {
    if (--ops_left_ > 0) return;
    training_ = false;
    ++trained_;
    return advance();
  }
  if (turns_left_ > 0) return host_->wait(job_.number, next_tool_wait(*job_.spec, rollout_), kTool);
  rolling_ = false;
  ++rolled_;
  advance();
}

void RlJob::waited(std::uint64_t) { submit_turn(); }

}  // namespace plexrl::sim
