// SPDX-License-Identifier: Apache-2.0
#include "core/device_scheduler.h"

#include <algorithm>
#include <cinttypes>

#include "base/check.h"
#include "core/int_math.h"

namespace plexrl::core {
namespace {

// Dispatching an op costs the device about this much, whatever the op reports; it also keeps a
// stream of empty ops from holding its turn for ever.
constexpr Duration kMinimumCharge{100'000};

constexpr std::uint64_t kMaxRows = 1U << 20;  // that are counted

bool preemptible(OpKind kind) { return kind == OpKind::kGenerate || kind == OpKind::kLease; }
bool repeatable(OpKind kind) { return preemptible(kind) || kind == OpKind::kLogprobs; }

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::create(const SchedulerConfig& config) {
  if (config.device_capacity_bytes == 0)
    return error(Code::INVALID_ARGUMENT, "scheduler: the device has no capacity");
  if (config.quantum.ns <= 0)
    return error(Code::INVALID_ARGUMENT, "scheduler: the quantum must be more than 0");
  auto scheduler = std::make_unique<DeviceScheduler>(config);
  if (!scheduler->has_policy())
    return error(
        Code::INVALID_ARGUMENT,
        "scheduler: policy '%s' is not known; use fifo, round-robin, hrrs or least-slowdown",
        std::string(config.policy).c_str());
  return std::unique_ptr<Scheduler>(std::move(scheduler));
}

DeviceScheduler::DeviceScheduler(const SchedulerConfig& config)
    : config_(config),
      policy_name_(config.policy),
      policy_(make_policy(config.policy, config.quantum, costs_)),
      ops_(*this),
      models_(config.device_capacity_bytes) {
  config_.policy = policy_name_;
}

Actions DeviceScheduler::step(const Event& event, TimePoint now) {
  now_ = std::max(now_, now);
  out_ = {};
  charge(now_);
  std::visit([this](const auto& what) { on(what); }, event);
  decide();
  return std::move(out_);
}

Status DeviceScheduler::admissible(std::uint64_t device_bytes, ModelId base) const {
  const ModelEntry* entry = base ? models_.find(base) : nullptr;
  const std::uint64_t base_bytes = entry != nullptr ? entry->device_bytes : 0;
  const std::uint64_t capacity = models_.capacity();
  if (base_bytes <= capacity && device_bytes <= capacity - base_bytes) return {};
  return error(Code::NO_CAPACITY,
               "needs %" PRIu64 " bytes of device memory beside %" PRIu64
               " of its base, the device has %" PRIu64
               "; use fewer rows or shorter sequences, or a smaller lease",
               device_bytes, base_bytes, capacity);
}

// ---- events ----

void DeviceScheduler::on(const ModelAdded& event) {
  PLEXRL_CHECK(event.model && event.engine, "a model has a number and an engine");
  ModelEntry entry;
  entry.tenant = event.tenant;
  entry.engine = event.engine;
  entry.base = event.base;
  entry.device_bytes = event.device_bytes;
  entry.share_percent = event.share_percent;
  models_.add(event.model, std::move(entry));
  engines_[event.engine].models.insert(event.model);
  ledger_.add(event.tenant);
  ops_.add_model(event.model, event.tenant);
  update_runnable(event.model);
}

void DeviceScheduler::on(const ModelRemoved& event) {
  const ModelEntry* entry = models_.find(event.model);
  PLEXRL_CHECK(entry != nullptr && !entry->removed, "a model that is not there was removed");
  for (const ModelId adapter : entry->adapters)
    PLEXRL_CHECK(models_.at(adapter).removed, "a base was removed before its adapters");
  for (const auto& [id, running] : running_)
    if (running.model == event.model) op_gone(entry->tenant, *ops_.find(id));
  ops_.remove_model(event.model);
  models_.set_removed(event.model);
  removed_.insert(event.model);
  if (committed_ == event.model) committed_ = {};
  erase_if_gone(event.model);
}

void DeviceScheduler::on(const OpArrived& event) {
  const ModelEntry* entry = models_.find(event.model);
  PLEXRL_CHECK(entry != nullptr && !entry->removed, "an op of a model that is not there arrived");
  PLEXRL_CHECK(event.kind != OpKind::kNone && event.op, "an op has a number and a kind");
  Op op;
  op.model = event.model;
  op.kind = event.kind;
  op.device_bytes = event.device_bytes;
  op.work_tokens = event.work_tokens;
  op.rows = std::clamp<std::uint64_t>(event.rows, 1, kMaxRows);
  op.alone = event.alone;
  op.slice = event.slice;
  op.limit = event.limit;
  op.waits_since = now_;
  op.expected = costs_.op(entry->tenant, event.kind, event.work_tokens).value_or(event.slice);
  const std::uint64_t room = models_.capacity() - std::min(models_.capacity(), entry->device_bytes);
  op.too_large = event.device_bytes > room ||
                 !admissible(entry->device_bytes + event.device_bytes, entry->base).ok();
  if (!op.too_large) {
    ledger_.op_arrived(entry->tenant, event.kind, now_);
    expect_ops(*entry);
  }
  ops_.add(event.op, op);
}

void DeviceScheduler::on(const OpCancelled& event) {
  const Op* op = ops_.find(event.op);
  PLEXRL_CHECK(op != nullptr, "an op that is not there was cancelled");
  if (op->queued) return release(event.op);
  if (!repeatable(op->kind) || op->cancelled) return;
  ops_.set_cancelled(event.op);
  ask_to_yield(running_.at(event.op));
}

void DeviceScheduler::on(const OpYielded& event) {
  PLEXRL_CHECK(running_.contains(event.op), "an op yielded that does not run");
  const ModelId model = running_.at(event.op).model;
  const bool gone = ops_.find(event.op)->cancelled || models_.at(model).removed;
  end_run(event.op);
  if (gone) {
    release(event.op);
    erase_if_gone(model);
  } else {
    ops_.put_back(event.op, now_);
  }
}

void DeviceScheduler::on(const OpFinished& event) {
  PLEXRL_CHECK(running_.contains(event.op), "an op finished that does not run");
  const ModelId model = running_.at(event.op).model;
  const TenantId tenant = running_.at(event.op).tenant;
  end_run(event.op);
  const Op& op = *ops_.find(event.op);
  if (!op.cancelled && op.kind != OpKind::kLease && !models_.at(model).removed)
    costs_.learn_op(tenant, op.kind, op.work_tokens, op.ran);
  release(event.op);
  erase_if_gone(model);
}

void DeviceScheduler::on(const ModelResumed& event) {
  const ModelEntry* entry = models_.find(event.model);
  PLEXRL_CHECK(entry != nullptr, "a model that is not there was resumed");
  PLEXRL_CHECK(entry->place == Place::kResuming || entry->place == Place::kParked,
               "a model was resumed that is on the device");
  if (entry->place == Place::kResuming) learn_move(*entry);
  set_place(event.model, Place::kResident);
  models_.forget_failures(event.model);
}

void DeviceScheduler::on(const ModelParked& event) {
  const ModelEntry* entry = models_.find(event.model);
  PLEXRL_CHECK(entry != nullptr && entry->place == Place::kParking,
               "a model was parked that was not asked to");
  learn_move(*entry);
  set_place(event.model, Place::kParked);
  models_.forget_failures(event.model);
  erase_if_gone(event.model);
}

void DeviceScheduler::on(const MoveFailed& event) {
  const ModelEntry* entry = models_.find(event.model);
  const Place expected = event.was_resume ? Place::kResuming : Place::kParking;
  PLEXRL_CHECK(entry != nullptr && entry->place == expected,
               "a move failed that was not asked for");
  set_place(event.model, event.was_resume ? Place::kParked : Place::kResident);
  if (event.was_resume) {
    set_aside(event.model);
  } else {
    pauses_.emplace(models_.pause_eviction(event.model, now_), event.model);
  }
  erase_if_gone(event.model);
}

void DeviceScheduler::on(const EngineUp& event) {
  Engine& engine = engines_[event.engine];
  engine.up = true;
  for (const ModelId model : engine.models) update_runnable(model);
}

void DeviceScheduler::on(const EngineDown& event) {
  Engine& engine = engines_[event.engine];
  engine.up = false;
  const std::set<ModelId> models = engine.models;
  // Adapters first: a base leaves the device after them. Copied, as removed models are erased.
  for (const bool bases : {false, true})
    for (const ModelId model : models)
      if (const ModelEntry* entry = models_.find(model); entry && bases != bool{entry->base})
        lose(model);
}

void DeviceScheduler::on(const TenantBound& event) {
  ledger_.set_bound(event.tenant, event.slowdown_permille);
  ops_.tell_again(event.tenant);
}

// ---- decisions ----

void DeviceScheduler::decide() {
  end_pauses();
  park_removed();
  yield_at_ = {};
  while (choose_target()) {
    const Readiness readiness = prepare_target();
    if (readiness == Readiness::kStuck) {
      set_aside(ops_.find(target_)->model);
      continue;
    }
    if (!running_.empty()) {
      if (readiness == Readiness::kReady && joins(target_)) {
        start(target_);
        continue;
      }
      // Its tenant waits for itself: others may run meanwhile.
      if (models_.at(ops_.find(target_)->model).in_use) start_companions();
      maybe_yield(readiness);
      break;
    }
    if (readiness != Readiness::kReady || hold()) break;
    start_target();
  }
  if (!target_) prefetch();
  end_at_limit();
  set_wakeup();
}

void DeviceScheduler::park_removed() {
  for (const ModelId id : removed_) {
    const ModelEntry& entry = models_.at(id);
    if (entry.place == Place::kResident && !entry.in_use && entry.not_evicted_until.ns == 0 &&
        entry.live_adapters == 0)
      request(id, Place::kParking);
  }
}

bool DeviceScheduler::choose_target() {
  const bool oldest_first = policy_->oldest_op_first();
  if (committed_) {
    if (const auto op = ops_.pick_of(committed_, oldest_first)) {
      target_ = *op;
      return true;
    }
    committed_ = {};
  }
  const auto tenant = policy_->next(moment());
  target_ = tenant ? ops_.pick(*tenant, oldest_first) : OpId{};
  return tenant.has_value();
}

DeviceScheduler::Readiness DeviceScheduler::prepare_target() {
  const Op& op = *ops_.find(target_);
  const std::uint64_t missing = missing_bytes(op);
  if (!models_.fits(missing)) return make_room(missing);
  return bring_in();
}

// What has to be added to the used bytes before the op can start.
std::uint64_t DeviceScheduler::missing_bytes(const Op& op) const {
  const auto away = [](const ModelEntry& entry) {
    const bool out = entry.place == Place::kParked || entry.place == Place::kParking;
    return out ? entry.footprint() : 0;
  };
  const ModelEntry& model = models_.at(op.model);
  std::uint64_t missing = away(model) + (op.started ? 0 : op.device_bytes);
  if (model.base) missing += away(models_.at(model.base));
  return missing;
}

DeviceScheduler::Readiness DeviceScheduler::make_room(std::uint64_t bytes) {
  const ModelId model = ops_.find(target_)->model;
  const auto victims = models_.victims(bytes, model, now_);
  if (!victims) {
    if (models_.moving()) return Readiness::kMoving;
    return running_.empty() ? Readiness::kStuck : Readiness::kNeedsRunning;
  }
  if (running_.empty() && hold()) return Readiness::kMoving;
  committed_ = model;
  for (const ModelId victim : *victims) request(victim, Place::kParking);
  return Readiness::kMoving;
}

DeviceScheduler::Readiness DeviceScheduler::bring_in() {
  const ModelId id = ops_.find(target_)->model;
  const ModelEntry& model = models_.at(id);
  if (model.base && models_.at(model.base).place != Place::kResident) {
    committed_ = id;
    if (models_.at(model.base).place == Place::kParked) request(model.base, Place::kResuming);
    return Readiness::kMoving;
  }
  if (model.place == Place::kResident) return Readiness::kReady;
  committed_ = id;
  if (model.place == Place::kParked) request(id, Place::kResuming);
  return Readiness::kMoving;
}

void DeviceScheduler::start_target() {
  start(target_);
  start_companions();
}

void DeviceScheduler::start(OpId id) {
  const Op& op = *ops_.find(id);
  const ModelEntry& model = models_.at(op.model);
  if (!op.started) models_.add_kv(op.model, op.device_bytes);
  ledger_.started(model.tenant, now_);
  ops_.set_started(id);
  ops_.take(id);
  models_.set_in_use(op.model, true);
  models_.forget_failures(op.model);
  if (running_.empty()) {
    policy_->started(model.tenant);
    charged_until_ = now_;
  } else {
    policy_->joined(model.tenant);
  }
  running_.emplace(id,
                   Running{id, op.model, model.tenant, model.share_percent, now_, false, op.rows});
  committed_ = {};
  out_.list.emplace_back(StartOp{id});
}

// Whether an op that could start now runs beside those that run.
bool DeviceScheduler::joins(OpId id) const {
  const Op& op = *ops_.find(id);
  return running_.size() < kMaxBatch && fits_batch(op) && !models_.at(op.model).in_use &&
         std::all_of(running_.begin(), running_.end(), [&](const auto& entry) {
           return !entry.second.yield_asked && fits_batch(*ops_.find(entry.first)) &&
                  models_.at(entry.second.model).base == models_.at(op.model).base;
         });
}

bool DeviceScheduler::fits_batch(const Op& op) const {
  return op.kind == OpKind::kGenerate && !op.alone && models_.at(op.model).base;
}

// Next ops of other adapters of the base that could start as well, the oldest first. Nothing moves
// for them.
void DeviceScheduler::start_companions() {
  const Running& first = running_.begin()->second;
  if (!fits_batch(*ops_.find(first.op))) return;
  const ModelId base = models_.at(first.model).base;
  std::map<std::uint64_t, OpId> companions;  // by order of arrival
  for (const ModelId id : models_.at(base).adapters) {
    if (models_.at(id).place != Place::kResident) continue;
    const auto next = ops_.pick_of(id, policy_->oldest_op_first());
    if (next && joins(*next)) companions.emplace(ops_.find(*next)->order, *next);
  }
  for (const auto& [order, id] : companions)
    if (joins(id) && models_.fits(missing_bytes(*ops_.find(id)))) start(id);
}

// What runs makes way only when that lets the target go on, and when that is due for each op of it.
void DeviceScheduler::maybe_yield(Readiness readiness) {
  if (readiness == Readiness::kMoving) return;
  const Op& next = *ops_.find(target_);
  Duration longest{};
  for (const auto& [id, running] : running_) {
    if (running.yield_asked) continue;
    const auto left = run_left(running, next);
    if (!left) return;
    longest = std::max(longest, *left);
  }
  if (longest.ns > 0) {
    yield_at_ = now_ + longest;
    return;
  }
  for (auto& [id, running] : running_) ask_to_yield(running);
}

void DeviceScheduler::ask_to_yield(Running& running) {
  if (std::exchange(running.yield_asked, true)) return;
  out_.list.emplace_back(YieldOp{running.op});
}

// How much longer the op may run while the next one waits; none: to its end. A lease keeps its
// slice whatever the policy says: giving the device up costs it a copy of all of its memory. And it
// is asked under every policy, as it would never end.
std::optional<Duration> DeviceScheduler::run_left(const Running& running, const Op& next) const {
  const Op& op = *ops_.find(running.op);
  if (!preemptible(op.kind)) return std::nullopt;
  const TenantId waiter = models_.at(next.model).tenant;
  const bool own = waiter == running.tenant && op.kind != OpKind::kLease;
  if (own && class_of(next.kind) >= class_of(op.kind)) return std::nullopt;
  const auto turn = policy_->turn_left(runner(running), waiter, moment());
  if (op.kind != OpKind::kLease) {
    if (!turn) return std::nullopt;
    return std::max(*turn, Duration{});
  }
  if (op.slice.ns == 0) return std::nullopt;
  const Duration slice = running.started + op.slice - now_;
  return std::max({slice, turn.value_or(Duration{}), Duration{}});
}

void DeviceScheduler::end_at_limit() {
  for (auto& [id, running] : running_) {
    const Op& op = *ops_.find(id);
    if (running.yield_asked || op.limit.ns == 0) continue;
    const TimePoint end = running.started + op.limit;
    if (now_ >= end)
      ask_to_yield(running);
    else
      yield_at_ = yield_at_.ns == 0 ? end : std::min(yield_at_, end);
  }
}

void DeviceScheduler::set_wakeup() {
  out_.wakeup = yield_at_;
  if (pauses_.empty()) return;
  const TimePoint pause_ends = pauses_.begin()->first;
  out_.wakeup = out_.wakeup.ns == 0 ? pause_ends : std::min(out_.wakeup, pause_ends);
}

// ---- bookkeeping ----

void DeviceScheduler::request(ModelId model, Place place) {
  set_place(model, place);
  if (place == Place::kParking) {
    out_.list.emplace_back(ParkModel{model});
  } else {
    out_.list.emplace_back(ResumeModel{model});
  }
}

// A span is shared out by rows, what the division leaves goes to the first. Tenants of removed
// models may be gone.
void DeviceScheduler::charge(TimePoint until) {
  if (running_.empty()) return;
  const Duration used = until - std::exchange(charged_until_, until);
  if (used.ns <= 0) return;
  const std::uint64_t rows = batch_rows();
  const auto span = static_cast<std::uint64_t>(used.ns);
  std::uint64_t rest = span;
  for (const auto& [id, running] : running_) rest -= mul_div(span, running.rows, rows);
  bool turn = false;
  for (const auto& [id, running] : running_) {
    const std::uint64_t part = mul_div(span, running.rows, rows) + std::exchange(rest, 0);
    if (models_.at(running.model).removed) continue;
    policy_->charge(running.tenant, running.share_percent,
                    Duration{static_cast<std::int64_t>(part)});
    turn = true;
  }
  if (turn) policy_->turn_ran(used);
}

std::uint64_t DeviceScheduler::batch_rows() const {
  std::uint64_t rows = 0;
  for (const auto& [id, running] : running_) rows += running.rows;
  return rows;
}

void DeviceScheduler::end_run(OpId id) {
  const Running running = running_.extract(id).mapped();
  if (!models_.at(running.model).removed) {
    policy_->charge(running.tenant, running.share_percent, kMinimumCharge);
    policy_->turn_ran(kMinimumCharge);
  }
  models_.set_in_use(running.model, false);
  const Duration ran = now_ - running.started;
  const Op& op = *ops_.find(id);
  ops_.add_run(id, ran);
  ledger_.stopped(running.tenant, op.kind, ran, now_);
  ops_.tell_again(running.tenant);
}

void DeviceScheduler::release(OpId id) {
  const Op op = *ops_.find(id);
  if (op.started) models_.drop_kv(op.model, op.device_bytes);
  ops_.erase(id);
}

void DeviceScheduler::lose(ModelId id) {
  const auto running = std::find_if(running_.begin(), running_.end(),
                                    [id](const auto& entry) { return entry.second.model == id; });
  if (running != running_.end()) {
    const OpId op = running->first;
    const bool gone = ops_.find(op)->cancelled || models_.at(id).removed;
    end_run(op);
    if (gone) {
      release(op);
    } else {
      ops_.put_back(op, now_);
    }
  }
  set_place(id, Place::kParked);
  models_.drop_kv(id, models_.at(id).kv_bytes);
  ops_.forget_started(id);
  if (committed_ == id) committed_ = {};
  update_runnable(id);
  erase_if_gone(id);
}

void DeviceScheduler::set_aside(ModelId id) {
  if (committed_ == id || (committed_ && models_.at(committed_).base == id)) committed_ = {};
  pauses_.emplace(models_.pause_runs(id, now_), id);
  update_runnable(id);
}

void DeviceScheduler::end_pauses() {
  while (!pauses_.empty() && pauses_.begin()->first <= now_) {
    const ModelId id = pauses_.begin()->second;
    pauses_.erase(pauses_.begin());
    if (models_.find(id) == nullptr) continue;
    models_.end_pauses(id, now_);
    update_runnable(id);
  }
}

bool DeviceScheduler::engine_up(EngineId engine) const {
  const auto found = engines_.find(engine);
  return found != engines_.end() && found->second.up;
}

bool DeviceScheduler::runnable(const ModelEntry& entry) const {
  const bool base_waits = entry.base && models_.at(entry.base).not_run_until.ns != 0;
  return engine_up(entry.engine) && entry.not_run_until.ns == 0 && !base_waits;
}

void DeviceScheduler::update_runnable(ModelId id) {
  const ModelEntry& entry = models_.at(id);
  if (!entry.removed) ops_.set_runnable(id, runnable(entry));
  for (const ModelId adapter : entry.adapters) update_runnable(adapter);
}

void DeviceScheduler::erase_if_gone(ModelId id) {
  const ModelEntry* entry = models_.find(id);
  if (!entry->removed || entry->in_use || entry->place != Place::kParked ||
      !entry->adapters.empty())
    return;
  const ModelId base = entry->base;
  pauses_.erase({entry->not_run_until, id});
  pauses_.erase({entry->not_evicted_until, id});
  const auto engine = engines_.find(entry->engine);
  engine->second.models.erase(id);
  if (engine->second.models.empty() && !engine->second.up) engines_.erase(engine);
  removed_.erase(id);
  models_.erase(id);
  if (base) erase_if_gone(base);
}

}  // namespace plexrl::core
