// SPDX-License-Identifier: Apache-2.0
// A device that carries out the scheduler's actions in virtual time, keeps its own books, and fails
// the test when an action breaks the contract. Random by seed: a seed reproduces a run.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/scheduler.h"

namespace plexrl::core {

struct SimulatedFaults {
  std::uint32_t move_fails_percent = 0;
  std::uint32_t park_with_kv_fails_percent = 0;
};

class SimulatedDevice {
 public:
  SimulatedDevice(const SchedulerConfig& config, std::uint64_t seed, SimulatedFaults faults = {})
      : config_(config), random_(seed), faults_(faults) {
    scheduler_ = Scheduler::create(config).value();
  }

  void send(const Event& event) {
    log_.push_back({event, now_});
    const Actions actions = scheduler_->step(event, now_);
    actions_ += describe(actions);
    for (const Action& action : actions.list) std::visit([this](auto what) { act(what); }, action);
    wakeup_ = actions.wakeup;
    check();
  }

  void add_engine(EngineId engine) {
    engines_[engine] = true;
    send(EngineUp{engine});
  }
  void add_model(const ModelAdded& model) {
    models_[model.model].spec = model;
    send(model);
  }
  OpId add_op(ModelId model, OpKind kind, std::uint64_t kv, std::int64_t ms, Duration slice = {},
              Duration limit = {}) {
    return arrive(Op{model, kind, kv, ms * kMillisecond.ns}, slice, limit);
  }
  OpId add_generate(ModelId model, std::uint64_t kv, std::int64_t ms, std::uint64_t rows,
                    bool alone = false) {
    Op op{model, OpKind::kGenerate, kv, ms * kMillisecond.ns};
    op.rows = rows;
    op.alone = alone;
    return arrive(op, {}, {});
  }
  void cancel(OpId id) {
    Op& op = ops_.at(id);
    if (op.running) {
      op.cancelled =
          op.kind == OpKind::kGenerate || op.kind == OpKind::kLogprobs || op.kind == OpKind::kLease;
    } else {
      free_kv(op);
      ops_.erase(id);
    }
    send(OpCancelled{id});
  }
  void kill_engine(EngineId engine) {
    engines_[engine] = false;
    for (auto& [id, model] : models_)
      if (model.spec.engine == engine) {
        model.place = Place::kParked;
        model.kv = 0;
        model.leaving = 0;
        ++model.life;
      }
    for (auto& [id, op] : ops_)
      if (models_.at(op.model).spec.engine == engine) {
        running_.erase(id);
        op.running = op.started = op.asked = false;
        ++op.life;
      }
    std::erase_if(ops_, [&](const auto& entry) {
      return entry.second.cancelled && models_.at(entry.second.model).spec.engine == engine;
    });
    send(EngineDown{engine});
  }

  // One answer or wakeup; false when nothing is to come.
  bool advance() {
    if (pending_.empty() && wakeup_.ns == 0) return false;
    if (pending_.empty() || (wakeup_.ns != 0 && wakeup_ < pending_.begin()->first)) {
      now_ = std::max(now_, wakeup_);
      send(Tick{});
      return true;
    }
    now_ = pending_.begin()->first;
    const auto answer = pending_.begin()->second;
    pending_.erase(pending_.begin());
    answer();
    return true;
  }
  // Until all ops are done; false when that never comes.
  bool drain(int max_steps = 200000) {
    while (!ops_.empty() && max_steps-- > 0)
      if (!advance()) return false;
    return ops_.empty();
  }

  // Something of the test's own, later.
  void after(std::int64_t ms, std::function<void()> what) {
    later(ms * kMillisecond.ns, std::move(what));
  }
  std::function<void(OpId)> on_finish;  // after the scheduler has heard of it
  std::int64_t move_ms = 0;             // every move takes so long; 0: up to 5 ms, by chance

  Scheduler& scheduler() { return *scheduler_; }
  void swap_scheduler(std::unique_ptr<Scheduler> scheduler) { scheduler_ = std::move(scheduler); }
  [[nodiscard]] const std::string& actions() const { return actions_; }
  [[nodiscard]] const std::vector<std::pair<Event, TimePoint>>& log() const { return log_; }
  [[nodiscard]] TimePoint now() const { return now_; }
  [[nodiscard]] bool idle() const { return ops_.empty(); }
  // The oldest of those that run.
  [[nodiscard]] OpId running() const { return running_.empty() ? OpId{} : *running_.begin(); }
  [[nodiscard]] const std::set<OpId>& batch() const { return running_; }
  [[nodiscard]] std::size_t largest_batch() const { return largest_batch_; }
  [[nodiscard]] const std::vector<OpId>& started() const { return started_; }
  [[nodiscard]] bool engine_up(EngineId engine) const { return engines_.at(engine); }
  [[nodiscard]] bool resident(ModelId model) const {
    return models_.at(model).place == Place::kResident;
  }
  [[nodiscard]] std::vector<OpId> open_ops() const {
    std::vector<OpId> ids;
    for (const auto& [id, op] : ops_) ids.push_back(id);
    return ids;
  }
  std::int64_t device_ns(TenantId tenant) { return device_ns_[tenant]; }
  void stop_faults() { faults_ = {}; }
  std::uint64_t random(std::uint64_t below) { return random_() % below; }

  static std::string describe(const Actions& actions) {
    std::string text;
    for (const Action& action : actions.list)
      text += std::visit([](auto what) { return name(what); }, action);
    return text + "@" + std::to_string(actions.wakeup.ns) + "\n";
  }

 private:
  enum class Place { kParked, kResuming, kResident, kParking };
  struct Model {
    ModelAdded spec;
    Place place = Place::kParked;
    std::uint64_t kv = 0;       // of started ops
    std::uint64_t leaving = 0;  // cancelled while it moves
    std::uint64_t life = 0;     // answers of an earlier life are dropped
  };
  struct Op {
    ModelId model;
    OpKind kind = OpKind::kNone;
    std::uint64_t kv = 0;
    std::int64_t left_ns = 0;
    bool started = false;
    bool running = false;
    bool cancelled = false;
    bool asked = false;  // to yield
    bool alone = false;
    std::uint64_t rows = 1;
    TimePoint since{};
    std::uint64_t life = 0;
  };

  OpId arrive(const Op& op, Duration slice, Duration limit) {
    const OpId id{++last_op_};
    ops_[id] = op;
    send(OpArrived{id, op.model, op.kind, op.kv, 1, slice, limit, op.rows, op.alone});
    return id;
  }
  // Whether both may run at the same time.
  [[nodiscard]] bool together(const Op& a, const Op& b) const {
    const auto joins = [](const Op& op) { return op.kind == OpKind::kGenerate && !op.alone; };
    const ModelId base = models_.at(a.model).spec.base;
    return joins(a) && joins(b) && a.model != b.model && base &&
           base == models_.at(b.model).spec.base;
  }

  static std::string name(StartOp a) { return "start " + std::to_string(a.op.value) + ";"; }
  static std::string name(YieldOp a) { return "yield " + std::to_string(a.op.value) + ";"; }
  static std::string name(ResumeModel a) { return "resume " + std::to_string(a.model.value) + ";"; }
  static std::string name(ParkModel a) { return "park " + std::to_string(a.model.value) + ";"; }

  void later(std::int64_t ns, std::function<void()> answer) {
    pending_.emplace(now_ + Duration{ns}, std::move(answer));
  }

  void act(StartOp action) {
    Op& op = ops_.at(action.op);
    Model& model = models_.at(op.model);
    for (const OpId other : running_) {
      EXPECT_TRUE(together(op, ops_.at(other))) << "they cannot run together";
      EXPECT_FALSE(ops_.at(other).asked) << "nobody joins a batch that makes way";
    }
    EXPECT_TRUE(engines_.at(model.spec.engine));
    EXPECT_EQ(model.place, Place::kResident);
    if (model.spec.base) {
      EXPECT_EQ(models_.at(model.spec.base).place, Place::kResident);
    }
    if (!op.started) model.kv += op.kv;
    op.started = op.running = true;
    op.asked = false;
    op.since = now_;
    running_.insert(action.op);
    largest_batch_ = std::max(largest_batch_, running_.size());
    started_.push_back(action.op);
    later(op.left_ns, [this, id = action.op, life = ++op.life] { finish(id, life); });
  }
  void act(YieldOp action) {
    Op& op = ops_.at(action.op);
    EXPECT_TRUE(running_.contains(action.op));
    EXPECT_FALSE(op.asked);
    op.asked = true;
    EXPECT_TRUE(op.kind == OpKind::kGenerate || op.kind == OpKind::kLease || op.cancelled);
    const std::int64_t point = static_cast<std::int64_t>(random(2 * kMillisecond.ns));
    later(point, [this, id = action.op, life = op.life] { yield(id, life); });
  }
  void act(ResumeModel action) {
    Model& model = models_.at(action.model);
    EXPECT_EQ(model.place, Place::kParked);
    EXPECT_TRUE(engines_.at(model.spec.engine));
    if (model.spec.base) {
      EXPECT_EQ(models_.at(model.spec.base).place, Place::kResident);
    }
    model.place = Place::kResuming;
    move(action.model, Place::kResident, Place::kParked, faults_.move_fails_percent);
  }
  void act(ParkModel action) {
    Model& model = models_.at(action.model);
    EXPECT_EQ(model.place, Place::kResident);
    for (const OpId running : running_) {
      const Model& busy = models_.at(ops_.at(running).model);
      EXPECT_NE(busy.spec.model, action.model) << "a model in use was parked";
      EXPECT_NE(busy.spec.base, action.model) << "a base in use was parked";
    }
    for (const auto& [id, other] : models_)
      if (other.spec.base == action.model) {
        EXPECT_EQ(other.place, Place::kParked) << "a base was parked before its adapters";
      }
    model.place = Place::kParking;
    const std::uint32_t fails = model.kv > 0 ? faults_.park_with_kv_fails_percent : 0;
    move(action.model, Place::kParked, Place::kResident,
         std::max(fails, faults_.move_fails_percent));
  }

  void move(ModelId id, Place good, Place bad, std::uint32_t fails_percent) {
    const bool fails = random(100) < fails_percent;
    const std::int64_t ns = move_ms > 0
                                ? move_ms * kMillisecond.ns
                                : static_cast<std::int64_t>(1 + random(5 * kMillisecond.ns));
    later(ns, [this, id, to = fails ? bad : good, fails, life = ++models_.at(id).life] {
      const auto found = models_.find(id);
      if (found == models_.end() || found->second.life != life) return;
      Model& model = found->second;
      const bool was_resume = model.place == Place::kResuming;
      model.place = to;
      model.kv -= std::exchange(model.leaving, 0);
      if (fails) return send(MoveFailed{id, was_resume});
      if (was_resume) return send(ModelResumed{id});
      send(ModelParked{id});
    });
  }

  void finish(OpId id, std::uint64_t life) {
    const auto found = ops_.find(id);
    if (found == ops_.end() || found->second.life != life) return;
    device_ns_[models_.at(found->second.model).spec.tenant] += (now_ - found->second.since).ns;
    free_kv(found->second);
    running_.erase(id);
    ops_.erase(found);
    send(OpFinished{id});
    if (on_finish) on_finish(id);
  }
  void yield(OpId id, std::uint64_t life) {
    const auto found = ops_.find(id);
    if (found == ops_.end() || found->second.life != life) return;
    Op& op = found->second;
    device_ns_[models_.at(op.model).spec.tenant] += (now_ - op.since).ns;
    op.left_ns -= (now_ - op.since).ns;
    op.running = false;
    ++op.life;
    running_.erase(id);
    if (op.cancelled) {
      free_kv(op);
      ops_.erase(found);
    }
    send(OpYielded{id});
  }
  void free_kv(Op& op) {
    if (!op.started) return;
    Model& model = models_.at(op.model);
    const bool moves = model.place == Place::kResuming || model.place == Place::kParking;
    (moves ? model.leaving : model.kv) += moves ? op.kv : 0 - op.kv;
    op.started = false;
  }

  void check() {
    std::uint64_t used = 0;
    for (const auto& [id, model] : models_)
      if (model.place != Place::kParked) used += model.spec.device_bytes + model.kv;
    EXPECT_LE(used, config_.device_capacity_bytes) << "more than the device has";
  }

  SchedulerConfig config_;
  std::mt19937_64 random_;
  SimulatedFaults faults_;
  std::unique_ptr<Scheduler> scheduler_;
  TimePoint now_{1};
  TimePoint wakeup_{};
  std::multimap<TimePoint, std::function<void()>> pending_;
  std::map<EngineId, bool> engines_;
  std::map<ModelId, Model> models_;
  std::map<OpId, Op> ops_;
  std::map<TenantId, std::int64_t> device_ns_;
  std::uint64_t last_op_ = 0;
  std::set<OpId> running_;
  std::size_t largest_batch_ = 0;
  std::vector<OpId> started_;
  std::string actions_;
  std::vector<std::pair<Event, TimePoint>> log_;
};

}  // namespace plexrl::core
