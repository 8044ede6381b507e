// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatcher.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "runtime/sampling_groups.h"

namespace plexrl::runtime {
namespace {

// A model that cannot be made resident this often in a row has its ops fail with the reason: the
// scheduler's growing pauses have then waited about as long as a person would.
constexpr unsigned kMaxResumeFailures = 4;

// Where the scheduler sees leases; always up.
constexpr EngineId kLeaseEngine{std::uint64_t{1} << 62};

unsigned long long number(OpId op) { return op.value; }
unsigned long long number(ModelId model) { return model.value; }

}  // namespace

Dispatcher::Dispatcher(Parts parts)
    : parts_(std::move(parts)), mover_(parts_.engines, parts_.models, parts_.state, *this) {}

// ---- the scheduler ----

void Dispatcher::post(core::Event event) {
  events_.push_back(event);
  // While draining nothing new is started; what is left ends with this process.
  if (stepping_ || draining_) return;
  stepping_ = true;
  while (!events_.empty()) {
    const core::Event next = events_.front();
    events_.pop_front();
    const TimePoint now = parts_.clock.now();
    parts_.accounting.advance(now);
    const core::Actions actions = parts_.scheduler.step(next, now);
    if (parts_.record) parts_.record(next, now, actions);
    wakeup_ = actions.wakeup;
    carry_out(actions);
  }
  stepping_ = false;
  parts_.state.prefetch();
  if (wakeup_.ns != 0) parts_.wake(wakeup_);
}

void Dispatcher::carry_out(const core::Actions& actions) {
  for (const core::Action& action : actions.list) {
    if (move_lease(action)) continue;
    if (const auto* start = std::get_if<core::StartOp>(&action)) {
      start_op(start->op);
    } else if (const auto* yield = std::get_if<core::YieldOp>(&action)) {
      ask_to_yield(yield->op);
    } else if (const auto* resume = std::get_if<core::ResumeModel>(&action)) {
      parts_.accounting.move_started(resume->model, tenant_of(resume->model));
      mover_.resume(resume->model);
    } else if (const auto* park = std::get_if<core::ParkModel>(&action)) {
      parts_.accounting.move_started(park->model, tenant_of(park->model));
      start_park(park->model);
    }
  }
}

void Dispatcher::start_park(ModelId model) {
  if (held_.count(parts_.models.engine_of(model)) != 0) {
    park_later_.insert(model);
  } else if (removing_.count(model) != 0) {
    mover_.forget(model);
  } else {
    mover_.park(model);
  }
}

// None for a base.
TenantId Dispatcher::tenant_of(ModelId model) const {
  const Model* const row = parts_.models.find(model);
  return row == nullptr ? TenantId{} : row->tenant;
}

// Nothing is copied for a lease: its holder has parked its own memory before it yields.
bool Dispatcher::move_lease(const core::Action& action) {
  const auto* const resume = std::get_if<core::ResumeModel>(&action);
  if (resume != nullptr && is_lease(resume->model)) {
    events_.emplace_back(core::ModelResumed{resume->model});
    return true;
  }
  const auto* const park = std::get_if<core::ParkModel>(&action);
  if (park == nullptr || !is_lease(park->model)) return false;
  events_.emplace_back(core::ModelParked{park->model});
  return true;
}

void Dispatcher::feed(Op& op) {
  op.state = OpState::kQueued;
  op.shared.clear();
  // Whoever was there when an engine died is alone until its end: the one whose fault it was takes
  // nobody else with it again.
  post(core::OpArrived{op.id, op.model, op.kind, op.kv_bytes, op.work_tokens, op.slice, op.limit,
                       op.rows, op.deaths > 0});
}

void Dispatcher::lease_added(Op& op, std::uint64_t device_bytes, const slurm::Grant& grant,
                             bool held) {
  post(core::TenantBound{op.tenant, grant.slowdown_permille});
  post(core::ModelAdded{op.model, op.tenant, kLeaseEngine, ModelId{}, device_bytes,
                        grant.share_percent});
  if (held) post(core::ModelResumed{op.model});
  post(core::EngineUp{kLeaseEngine});
  feed(op);
}

void Dispatcher::lease_yielded(Op& op) {
  op_stopped(op);
  op.state = OpState::kYielded;
  post(core::OpYielded{op.id});
}

void Dispatcher::lease_ended(Op& op) {
  const OpId id = op.id;
  const ModelId model = op.model;
  if (op.state == OpState::kRunning) {
    op_stopped(op);
    op.state = OpState::kHeld;
    post(core::OpFinished{id});
  } else {
    op.state = OpState::kHeld;
    post(core::OpCancelled{id});
  }
  post(core::ModelRemoved{model});
}

void Dispatcher::withdraw(Op& op) {
  PLEXRL_CHECK(op.state == OpState::kQueued || op.state == OpState::kYielded,
               "only ops that wait can be withdrawn");
  if (op.state == OpState::kYielded) drop_in_engine(op);
  op.state = OpState::kHeld;
  post(core::OpCancelled{op.id});
}

void Dispatcher::cancel(Op& op) {
  // A training op that the engine has seen may have added gradients: it ends on its own.
  if (op.training() && op.started) return;
  if (op.in_doubt) {
    op.cancelled = true;
    return;
  }
  if (op.state == OpState::kRunning) {
    op.cancelled = true;
    post(core::OpCancelled{op.id});
    return;
  }
  if (op.fed()) withdraw(op);
  parts_.listener.op_ended(op.id, error(Code::CANCELLED, "cancelled before it ended"));
}

// ---- ops ----

void Dispatcher::start_op(OpId id) {
  Op* const op = parts_.ops.find(id);
  PLEXRL_CHECK(op != nullptr && op->fed(), "the scheduler starts ops that it was given");
  const TimePoint now = parts_.clock.now();
  op->running_since = now;
  op->state = OpState::kRunning;
  parts_.accounting.advance(now);
  parts_.accounting.started(op->tenant, op->rows);
  parts_.listener.op_started(*op);
  if (op->kind == core::OpKind::kLease) return leases_->lease_granted(*op);
  running_.insert(id);
  begin_op(*op);
}

void Dispatcher::begin_op(Op& op) {
  Status ready =
      op.kind == core::OpKind::kGenerate ? mover_.take_kv(op.model, op.kv_bytes) : Status{};
  // The scheduler counts what an engine was asked to drop as free.
  if (ready.code() == Code::NO_CAPACITY && parts_.state.kv_retiring()) {
    waits_for_memory_.insert(op.id);
    return;
  }
  Result<std::vector<int>> fds = ready.ok() ? parts_.files.open(op) : ready;
  if (!fds) return end_op(op, fds.error());
  op.started = true;
  wire::EngineRunOpT request;
  request.op = op.id.value;
  request.model = parts_.models.wire_id(op.model);
  request.seq = op.seq;
  request.version_out = op.publish() ? op.seq : 0;
  request.args = engine_args(op);
  if (op.kind == core::OpKind::kGenerate) request.kv = mover_.kv_place(op.model);
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  parts_.engines.call(
      parts_.models.engine_of(op.model), std::move(body), std::move(*fds),
      [this, id = op.id](const Result<engine::Reply>& reply) { op_answered(id, reply); });
}

// Of a group what it was when the engine got it first, also when it goes on.
const wire::OpArgsUnion& Dispatcher::engine_args(Op& op) {
  if (op.shared.empty() && op.riders.empty()) return op.args;
  if (op.shared.empty()) op.shared_args.Set(shared_args(op, parts_.ops));
  return op.shared_args;
}

// Device memory of KV that engines were asked to drop.
void Dispatcher::memory_came() {
  mover_.memory_came();
  for (const OpId id : std::exchange(waits_for_memory_, {}))
    if (Op* const op = parts_.ops.find(id)) begin_op(*op);
}

void Dispatcher::ask_to_yield(OpId id) {
  Op* const op = parts_.ops.find(id);
  if (op == nullptr || op->state != OpState::kRunning || yield_due_.count(id) != 0) return;
  if (op->kind == core::OpKind::kLease) return leases_->lease_asked(*op);
  if (waits_for_memory_.contains(id)) return op_yielded(*op);
  yield_due_[id] = parts_.clock.now() + parts_.yield_timeout;
  parts_.wake(yield_due_[id]);
  wire::EngineYieldT request;
  request.op = id.value;
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  parts_.engines.call(parts_.models.engine_of(op->model), std::move(body), {},
                      [](const Result<engine::Reply>&) {});
}

void Dispatcher::op_stopped(Op& op) {
  const TimePoint now = parts_.clock.now();
  parts_.accounting.advance(now);
  parts_.accounting.stopped(op.tenant, op.rows);
  op.run_ns += now.ns - op.running_since.ns;
  running_.erase(op.id);
  yield_due_.erase(op.id);
  waits_for_memory_.erase(op.id);
}

void Dispatcher::op_answered(OpId id, const Result<engine::Reply>& reply) {
  Op* const op = parts_.ops.find(id);
  // The engine's death is handled for all of its ops at once by engine_lost.
  if (op == nullptr || (!reply && reply.error().code() == Code::ENGINE_DOWN)) return;
  if (!reply) return end_op(*op, reply.error());
  if (const auto* done = reply->body.AsEngineOpDone()) return end_op(*op, *done);
  if (reply->body.AsEngineYielded() != nullptr) return op_yielded(*op);
  end_op(*op, error(Code::INTERNAL, "the engine answered the op with something else"));
}

void Dispatcher::op_yielded(Op& op) {
  op_stopped(op);
  op.state = OpState::kYielded;
  if (op.kind == core::OpKind::kForwardBackward && op.has_effect())
    mark_partial_gradients(op.model);
  if (!op.cancelled) return post(core::OpYielded{op.id});
  drop_in_engine(op);
  const OpId id = op.id;
  parts_.listener.op_ended(id, error(Code::CANCELLED, "cancelled while it ran"));
  post(core::OpYielded{id});
}

void Dispatcher::mark_partial_gradients(ModelId model) {
  state::Position position = parts_.models.find(model)->position;
  position.gradients_pending = true;
  parts_.state.mark_dirty(model, position);
}

void Dispatcher::end_op(Op& op, Result<wire::EngineOpDoneT> result) {
  op_stopped(op);
  if (op.kind == core::OpKind::kGenerate) mover_.free_kv(op.model);
  const OpId id = op.id;
  op.state = OpState::kHeld;
  const Status files = parts_.files.ended(op, result.has_value());
  if (result && !files.ok()) result = files;
  if (op.cancelled) result = error(Code::CANCELLED, "cancelled while it ran");
  parts_.listener.op_ended(id, std::move(result));
  post(core::OpFinished{id});
}

void Dispatcher::drop_in_engine(const Op& op) {
  wire::EngineDropOpT request;
  request.op = op.id.value;
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  const ModelId model = op.model;
  const std::uint64_t kv = op.kind == core::OpKind::kGenerate ? mover_.retire_kv(model) : 0;
  parts_.engines.call(parts_.models.engine_of(model), std::move(body), {},
                      [this, model, kv](const Result<engine::Reply>& reply) {
                        // Until then the engine may still map it. Its death gives it back, too.
                        if (kv == 0 || (!reply && reply.error().code() == Code::ENGINE_DOWN))
                          return;
                        mover_.kv_dropped(model, kv);
                        memory_came();
                      });
}

// ---- models and engines ----

void Dispatcher::base_added(const EngineRow& engine) {
  post(core::ModelAdded{engine.base_model, TenantId{}, engine.id, ModelId{},
                        parts_.state.device_bytes(engine.base_model), 100});
}

void Dispatcher::model_added(const Model& model, const slurm::Grant& grant) {
  const EngineRow* const engine = parts_.models.engine(model.engine);
  post(core::TenantBound{model.tenant, grant.slowdown_permille});
  post(core::ModelAdded{model.id, model.tenant, model.engine, engine->base_model,
                        parts_.state.device_bytes(model.id), grant.share_percent});
}

void Dispatcher::remove_model(ModelId model) {
  removing_.insert(model);
  const bool asked = [&] {
    post(core::ModelRemoved{model});
    const Model* const row = parts_.models.find(model);
    return row != nullptr && (row->resident || mover_.moving(model));
  }();
  if (asked) return;
  mover_.forget_parked(model);
  removed(model);
}

void Dispatcher::engine_up(EngineId engine) {
  if (held_.empty()) return post(core::EngineUp{engine});
  up_later_.insert(engine);
}

void Dispatcher::release(EngineId engine) {
  if (held_.erase(engine) == 0) return;
  const std::set<ModelId> parks = std::exchange(park_later_, {});
  for (const ModelId model : parks) start_park(model);
  if (!held_.empty()) return;
  const std::set<EngineId> up = std::exchange(up_later_, {});
  for (const EngineId each : up) post(core::EngineUp{each});
}

Status Dispatcher::adopted(ModelId model, const wire::ModelHeldT& held) {
  PLEXRL_TRY(mover_.adopt(model, held));
  post(core::ModelResumed{model});
  return {};
}

void Dispatcher::engine_lost(EngineId engine) {
  std::vector<ModelId> lost;
  for (const Model* model : parts_.models.of_engine(engine)) lost.push_back(model->id);
  if (const EngineRow* row = parts_.models.engine(engine); row != nullptr && row->base_known)
    lost.push_back(row->base_model);
  std::vector<OpId> withdrawn;
  up_later_.erase(engine);
  for (const ModelId model : lost) {
    park_later_.erase(model);
    parts_.accounting.move_ended(model);
    (void)mover_.engine_lost(model);
    resume_failures_.erase(model);
    for (Op* op : parts_.ops.of_model(model)) {
      if (op->state == OpState::kRunning) op_stopped(*op);
      (void)parts_.files.ended(*op, false);
      if (op->fed()) withdrawn.push_back(op->id);
    }
  }
  post(core::EngineDown{engine});
  for (const OpId id : withdrawn) {
    Op* const op = parts_.ops.find(id);
    op->state = OpState::kHeld;
    // The scheduler has forgotten those by itself: they were not to go on.
    if (!op->cancelled && removing_.count(op->model) == 0) post(core::OpCancelled{id});
  }
  const std::set<ModelId> removing = removing_;
  for (const ModelId model : lost)
    if (removing.count(model) != 0) removed(model);
  release(engine);
  memory_came();
}

void Dispatcher::resumed(ModelId model) {
  resume_failures_.erase(model);
  post(core::ModelResumed{model});
}

void Dispatcher::filled(ModelId model) {
  if (mover_.moving(model)) return;  // that move counts now
  parts_.accounting.advance(parts_.clock.now());
  parts_.accounting.move_ended(model);
}

void Dispatcher::resume_failed(ModelId model, const Status& why) {
  parts_.accounting.advance(parts_.clock.now());
  parts_.accounting.move_ended(model);
  PLEXRL_LOG(kWarning, "model %llu: resume: %s", number(model), why.to_string().c_str());
  post(core::MoveFailed{model, true});
  if (removing_.count(model) != 0) {
    mover_.forget_parked(model);
    return removed(model);
  }
  if (++resume_failures_[model] < kMaxResumeFailures) return;
  resume_failures_.erase(model);
  parts_.listener.model_unusable(model, why);
}

void Dispatcher::parked(ModelId model) {
  parts_.accounting.advance(parts_.clock.now());
  parts_.accounting.move_ended(model);
  post(core::ModelParked{model});
  if (removing_.count(model) == 0) return;
  mover_.forget_parked(model);
  removed(model);
}

void Dispatcher::park_failed(ModelId model, const Status& why) {
  parts_.accounting.advance(parts_.clock.now());
  parts_.accounting.move_ended(model);
  PLEXRL_LOG(kWarning, "model %llu: park: %s", number(model), why.to_string().c_str());
  post(core::MoveFailed{model, false});
  if (why.code() == Code::NO_CAPACITY) restart_generate(model);
}

// The KV of a yielded generate does not fit in the job's host memory beside its state: it is
// dropped and the generate begins again later, with the same result.
void Dispatcher::restart_generate(ModelId model) {
  for (Op* const op : parts_.ops.of_model(model)) {
    if (op->kind != core::OpKind::kGenerate || op->state != OpState::kYielded) continue;
    withdraw(*op);
    return feed(*op);
  }
}

void Dispatcher::rolled_back(ModelId model) { back_at_manifest(model, {}); }

void Dispatcher::damaged(ModelId model, const Status& why) {
  PLEXRL_LOG(kError, "%s", why.to_string().c_str());
  resume_failures_.erase(model);
  back_at_manifest(model, why);
}

void Dispatcher::back_at_manifest(ModelId model, const Status& why) {
  Model* const row = parts_.models.find(model);
  if (row == nullptr || row->removing) return;
  if (const auto* manifest = parts_.state.manifest(model)) row->position = manifest->position;
  // What the engine keeps beside the segments, yielded ops and their undoing, is of what is gone.
  mover_.forget_parked(model);
  parts_.listener.model_rolled_back(model, why);
}

// Also when the engine died meanwhile: its memory is free either way.
void Dispatcher::forgotten(ModelId model) {
  parts_.accounting.advance(parts_.clock.now());
  parts_.accounting.move_ended(model);
  post(core::ModelParked{model});
  removed(model);
}

void Dispatcher::removed(ModelId model) {
  if (removing_.erase(model) == 0) return;
  resume_failures_.erase(model);
  parts_.files.committed(model, UINT64_MAX);
  parts_.listener.model_gone(model);
}

void Dispatcher::committed(ModelId model, const state::Position& position) {
  parts_.files.committed(model, position.applied_seq);
  parts_.listener.model_committed(model, position);
}

void Dispatcher::commit_ended(ModelId model, const Status& why) {
  parts_.listener.commit_ended(model, why);
}

// ---- time ----

void Dispatcher::escalate(TimePoint now) {
  const auto late = std::find_if(yield_due_.begin(), yield_due_.end(),
                                 [&](const auto& entry) { return entry.second <= now; });
  if (late == yield_due_.end()) return;
  const Op* const op = parts_.ops.find(late->first);
  PLEXRL_LOG(kWarning, "op %llu did not yield in time", number(late->first));
  yield_due_.erase(late);
  if (op != nullptr)
    parts_.engines.kill(parts_.models.engine_of(op->model), "its op did not yield in time");
}

TimePoint Dispatcher::tick(TimePoint now) {
  if (wakeup_.ns != 0 && wakeup_ <= now) {
    wakeup_ = {};
    post(core::Tick{});
  }
  escalate(now);
  TimePoint next = wakeup_;
  for (const auto& [op, due] : yield_due_)
    if (next.ns == 0 || due < next) next = due;
  return next;
}

void Dispatcher::drain() {
  draining_ = true;
  const std::set<OpId> running = running_;
  for (const OpId id : running) ask_to_yield(id);
}

}  // namespace plexrl::runtime
