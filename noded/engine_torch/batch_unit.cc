// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/batch_unit.h"

#include <algorithm>
#include <utility>

namespace plexrl::worker {

void ActivationOwners::begin(ModelCode& code, std::uint64_t model) {
  const bool own = models_.size() <= 1 && models_.contains(model);
  if (!own) code.wipe_activations();
  models_ = {model};
}

bool BatchUnit::join(HeldModel& model, HeldOp& op) {
  const std::lock_guard lock(mutex_);
  joining_.push_back({&model, &op, system_clock().now()});
  return !std::exchange(running_, true);
}

void BatchUnit::run() {
  while (take_joining()) {
    if (members_.empty()) continue;
    step();
    stop_asked();
  }
}

// False: nobody is left, and whoever comes now has run() submitted again.
bool BatchUnit::take_joining() {
  if (members_.empty()) batch_.reset();
  std::vector<Member> joining;
  {
    const std::lock_guard lock(mutex_);
    joining = std::exchange(joining_, {});
    if (joining.empty() && members_.empty()) {
      running_ = false;
      return false;
    }
  }
  for (const Member& member : joining) begin(member);
  return true;
}

void BatchUnit::begin(Member member) {
  if (member.op->stop.drop) {
    OpOutcome outcome;
    outcome.kind = OpOutcome::Kind::kDropped;
    return leave(member, std::move(outcome));
  }
  if (const Status status = enter(member); !status.ok()) {
    OpOutcome outcome;
    outcome.error = status;
    return leave(member, std::move(outcome));
  }
  members_.push_back(member);
}

Status BatchUnit::enter(const Member& member) {
  if (!batch_)
    activations_.begin(table_.code(), member.model->id);
  else
    activations_.join(member.model->id);
  if (!member.op->run) PLEXRL_TRY(begin_op(table_, *member.model, *member.op));
  if (!batch_) batch_ = member.op->run->make_batch();
  if (!batch_ || !batch_->fits(*member.op->run))
    return error(Code::INTERNAL, "op %llu does not fit the batch that runs",
                 static_cast<unsigned long long>(member.op->request.op));
  return batch_->join(*member.op->run);
}

void BatchUnit::step() {
  auto ended = batch_->step();
  ++progress_;
  if (ended) {
    for (const model::OpBatch::Ended& end : *ended) this->end(end.run, end.status);
    return;
  }
  while (!members_.empty()) end(members_.front().op->run.get(), ended.error());
  batch_.reset();
}

void BatchUnit::end(const model::OpRun* run, const Status& status) {
  const auto at = std::find_if(members_.begin(), members_.end(),
                               [&](const Member& member) { return member.op->run.get() == run; });
  const Member member = *at;
  members_.erase(at);
  OpOutcome outcome;
  outcome.error = status;
  if (status.ok()) {
    outcome.kind = OpOutcome::Kind::kFinished;
    outcome.value = member.op->run->take_result();
    outcome.tokens = member.op->run->tokens_done();
  }
  leave(member, std::move(outcome));
}

// Whoever is in the unit has had a step, so that it comes on however often it is asked.
void BatchUnit::stop_asked() {
  std::vector<Member> stopped;
  std::erase_if(members_, [&](const Member& member) {
    const bool asked = member.op->stop.drop || member.op->stop.yield;
    if (asked) stopped.push_back(member);
    return asked;
  });
  for (const Member& member : stopped) {
    batch_->leave(*member.op->run);
    OpOutcome outcome;
    outcome.kind = OpOutcome::Kind::kYielded;
    if (member.op->stop.drop) outcome.kind = OpOutcome::Kind::kDropped;
    leave(member, std::move(outcome));
  }
}

void BatchUnit::leave(const Member& member, OpOutcome outcome) {
  if (outcome.kind == OpOutcome::Kind::kDropped && member.op->run) member.op->run->abandon();
  if (outcome.kind != OpOutcome::Kind::kYielded) end_op(*member.model, *member.op);
  outcome.run_ns = static_cast<std::uint64_t>((system_clock().now() - member.since).ns);
  left_(*member.op, std::move(outcome));
}

}  // namespace plexrl::worker
