// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_group.h"

#include <algorithm>

#include "base/check.h"

namespace plexrl::sim {
namespace {

EngineId engine_of(ModelId model) { return EngineId{model.value}; }

bool trains(core::OpKind kind) {
  return kind == core::OpKind::kForwardBackward || kind == core::OpKind::kOptimStep;
}

}  // namespace

SimGroup::SimGroup(const GroupConfig& config, EventQueue* events, GroupObserver* observer)
    : config_(config),
      events_(events),
      observer_(observer),
      scheduler_(core::Scheduler::create(config.scheduler).value()) {}

void SimGroup::add_model(ModelId model, TenantId tenant, std::uint64_t bytes,
                         std::uint32_t share_percent, TimePoint now) {
  models_[model] = Model{tenant, bytes, 0, false, false, false, false, {}};
  core::ModelAdded added;
  added.model = model;
  added.tenant = tenant;
  added.engine = engine_of(model);
  added.device_bytes = bytes;
  added.share_percent = share_percent;
  step(added, now);
  step(core::EngineUp{engine_of(model)}, now);
}

void SimGroup::remove_model(ModelId model, TimePoint now) {
  models_.at(model).removed = true;
  step(core::ModelRemoved{model}, now);
  if (!models_.at(model).moves) forget_model(model, now);  // it was not on the devices
}

void SimGroup::forget_model(ModelId model, TimePoint now) {
  models_.erase(model);
  step(core::EngineDown{engine_of(model)}, now);
}

void SimGroup::submit(const SimOp& op, TimePoint now) {
  PLEXRL_CHECK(ops_.emplace(op.id.value, Op{op, false, 0, {}}).second, "op numbers are new");
  core::OpArrived arrived;
  arrived.op = op.id;
  arrived.model = op.model;
  arrived.kind = op.kind;
  arrived.device_bytes = op.kv_bytes;
  arrived.work_tokens = static_cast<std::uint64_t>(op.time.ns / kMillisecond.ns);
  step(arrived, now);
}

OpId SimGroup::handle(const SimEvent& event) {
  using Kind = SimEvent::Kind;
  if (event.kind == Kind::kTick) {
    if (event.at == wakeup_) step(core::Tick{}, event.at);
    return {};
  }
  if (event.kind == Kind::kMoveEnds) {
    move_ended({event.number}, event.at);
    return {};
  }
  const auto op = ops_.find(event.number);
  if (op == ops_.end() || op->second.version != event.version) return {};
  if (event.kind == Kind::kOpEnds) return finish({event.number}, event.at);
  yielded({event.number}, event.at);
  return {};
}

SimGroup::Times SimGroup::times(TimePoint now) {
  account(now);
  return times_;
}

void SimGroup::step(const core::Event& event, TimePoint now) {
  account(now);
  now_ = now;
  const core::Actions actions = scheduler_->step(event, now);
  for (const core::Action& action : actions.list)
    std::visit([this](const auto& what) { act(what); }, action);
  if (actions.wakeup.ns != 0 && actions.wakeup != wakeup_)
    later(SimEvent::Kind::kTick, std::max(actions.wakeup, now), 0, 0);
  wakeup_ = actions.wakeup.ns == 0 ? TimePoint{} : std::max(actions.wakeup, now);
}

void SimGroup::account(TimePoint now) {
  const Duration passed = now - accounted_until_;
  accounted_until_ = now;
  if (running_) {
    times_.busy.ns += passed.ns;
  } else if (moves_ > 0 && !ops_.empty()) {
    times_.exposed.ns += passed.ns;
  }
}

void SimGroup::act(const core::StartOp& action) {
  Op& op = ops_.at(action.op.value);
  PLEXRL_CHECK(!running_, "one op runs at a time");
  op.started = true;
  op.since = now_;
  running_ = action.op;
  models_.at(op.spec.model).kv_bytes = op.spec.kv_bytes;
  later(SimEvent::Kind::kOpEnds, now_ + op.spec.time, action.op.value, ++op.version);
}

void SimGroup::act(const core::YieldOp& action) {
  const Op& op = ops_.at(action.op.value);
  // The op may end first; its version tells.
  later(SimEvent::Kind::kOpYields, now_ + config_.yield, action.op.value, op.version);
}

void SimGroup::act(const core::ResumeModel& action) {
  Model& model = moving(action.model, true);
  const std::uint64_t gradients = model.gradients ? model.bytes / 4 : 0;
  copied_in_at_ =
      std::max(now_, copied_in_at_) + copy_time(model.bytes + gradients + model.kv_bytes);
  later(SimEvent::Kind::kMoveEnds, copied_in_at_ + duration_of(config_.pool->move_latency_s),
        action.model.value, 0);
}

void SimGroup::act(const core::ParkModel& action) {
  Model& model = moving(action.model, false);
  TimePoint done = std::max(now_, model.committed_at);
  const std::uint64_t bytes = (model.gradients ? model.bytes / 4 : 0) + model.kv_bytes;
  if (model.removed) {
    done = now_;  // forgotten, not saved
  } else if (bytes > 0) {
    done = copied_out_at_ = std::max(done, copied_out_at_) + copy_time(bytes);
  }
  later(SimEvent::Kind::kMoveEnds, done + duration_of(config_.pool->move_latency_s),
        action.model.value, 0);
}

SimGroup::Model& SimGroup::moving(ModelId id, bool in) {
  Model& model = models_.at(id);
  PLEXRL_CHECK(!model.moves, "a model moves one way at a time");
  model.moves = true;
  model.in = in;
  ++moves_;
  return model;
}

Duration SimGroup::copy_time(std::uint64_t bytes) const {
  return sim::copy_time(*config_.pool, config_.gpus, bytes);
}

void SimGroup::stop_running(Op& op, TimePoint now) {
  if (observer_ != nullptr)
    observer_->ran(config_.id, models_.at(op.spec.model).tenant, op.spec.kind, op.since, now);
  account(now);
  running_ = {};
  ++op.version;
}

OpId SimGroup::finish(OpId id, TimePoint now) {
  Op& op = ops_.at(id.value);
  stop_running(op, now);
  Model& model = models_.at(op.spec.model);
  model.kv_bytes = 0;
  if (trains(op.spec.kind)) model.gradients = op.spec.kind == core::OpKind::kForwardBackward;
  if (op.spec.kind == core::OpKind::kOptimStep)
    model.committed_at = copied_out_at_ = std::max(now, copied_out_at_) + copy_time(model.bytes);
  ops_.erase(id.value);
  step(core::OpFinished{id}, now);
  return id;
}

void SimGroup::yielded(OpId id, TimePoint now) {
  Op& op = ops_.at(id.value);
  op.spec.time.ns -= (now - op.since).ns;
  stop_running(op, now);
  step(core::OpYielded{id}, now);
}

void SimGroup::move_ended(ModelId id, TimePoint now) {
  account(now);
  Model& model = models_.at(id);
  model.moves = false;
  --moves_;
  const bool gone = !model.in && model.removed;
  if (model.in) {
    step(core::ModelResumed{id}, now);
  } else {
    step(core::ModelParked{id}, now);
  }
  if (gone) forget_model(id, now);
}

void SimGroup::later(SimEvent::Kind kind, TimePoint at, std::uint64_t number,
                     std::uint64_t version) {
  events_->add({at, 0, kind, config_.id, number, version});
}

}  // namespace plexrl::sim
