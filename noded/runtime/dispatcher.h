// SPDX-License-Identifier: Apache-2.0
// Dispatcher: between core::Scheduler and the machine. Tells the scheduler what happened and
// carries out what it answers: ops by the engines, moves by the Mover. Every event goes to the
// journal. Events that come up while actions are carried out wait until those are through. Loop
// thread only.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/scheduler.h"
#include "runtime/accounting.h"
#include "runtime/mover.h"
#include "runtime/op_table.h"
#include "slurm/grant.h"

namespace plexrl::runtime {

class DispatchListener {
 public:
  virtual ~DispatchListener() = default;
  virtual void op_started(Op& op) = 0;
  // It has a result, or Failure and changed nothing. Not called when its engine died.
  virtual void op_ended(OpId op, Result<wire::EngineOpDoneT> result) = 0;
  virtual void model_committed(ModelId model, const state::Position& position) = 0;
  virtual void commit_ended(ModelId model, const Status& why) = 0;
  // It could not be made resident several times in a row.
  virtual void model_unusable(ModelId model, const Status& why) = 0;
  // Its state is that of its manifest again; nothing of it runs.
  // `why`, when it is not ok: its parked state is damaged.
  virtual void model_rolled_back(ModelId model, const Status& why) = 0;
  virtual void model_gone(ModelId model) = 0;  // after remove_model
};

// Leases run in a client's process, not in an engine.
class LeaseListener {
 public:
  virtual ~LeaseListener() = default;
  virtual void lease_granted(Op& lease) = 0;  // the device group is its holder's now
  virtual void lease_asked(Op& lease) = 0;    // to yield; it does so by lease_yielded
};

// Files that an op needs beside its arguments: the store's, or the client's fd.
class OpFiles {
 public:
  virtual ~OpFiles() = default;
  // The fds to send with the op; borrowed until it ended. Again for an op that goes on: the same.
  [[nodiscard]] virtual Result<std::vector<int>> open(const Op& op) = 0;
  // The op ended, well or not, or its engine died. What the op saved counts only when this is ok.
  [[nodiscard]] virtual Status ended(const Op& op, bool well) = 0;
  // No replay needs files of the model's ops up to `seq` any more.
  virtual void committed(ModelId model, std::uint64_t seq) = 0;
};

class Dispatcher final : public MoveListener {
 public:
  using Recorder = std::function<void(const core::Event&, TimePoint, const core::Actions&)>;
  struct Parts {
    const Clock& clock;
    core::Scheduler& scheduler;
    EngineSupervisor& engines;
    ModelTable& models;
    state::StateManager& state;
    OpTable& ops;
    Accounting& accounting;
    OpFiles& files;
    DispatchListener& listener;
    Recorder record;                      // may be empty
    std::function<void(TimePoint)> wake;  // tick() is needed by then
    Duration yield_timeout;
  };
  explicit Dispatcher(Parts parts);

  void set_leases(LeaseListener& leases) { leases_ = &leases; }  // before the first of them
  // Lease ops have a model number of lease_model(), which no model has. `held`: its holder has the
  // device already, over a restart of plexrld; tell before the engines are up.
  void lease_added(Op& op, std::uint64_t device_bytes, const slurm::Grant& grant, bool held);
  void lease_yielded(Op& op);  // a running one is queued again
  void lease_ended(Op& op);    // in any state; the caller removes the op

  void feed(Op& op);      // the scheduler gets it
  void withdraw(Op& op);  // the scheduler forgets it; not for a running one
  // Held, queued or yielded: op_ended(CANCELLED) from inside the call. Running sampling is asked to
  // stop; training that the engine has seen goes on and keeps its result. One in doubt is marked:
  // Reattach decides.
  void cancel(Op& op);

  // A forward_backward of the model has yielded: a park must keep the gradients that it has added.
  void mark_partial_gradients(ModelId model);

  void base_added(const EngineRow& engine);
  void model_added(const Model& model, const slurm::Grant& grant);
  // model_gone follows, at once when nothing of it is on the device.
  void remove_model(ModelId model);
  // Runs the engine's models, once no engine is held.
  void engine_up(EngineId engine);
  // The engine may run an op of an earlier plexrld, of which the scheduler knows nothing: until it
  // is released nothing starts on any engine, and none of its models leaves the device. A death of
  // the engine releases it, too.
  void hold(EngineId engine) { held_.insert(engine); }
  void release(EngineId engine);
  // A model that the engine held over a restart of plexrld; before engine_up.
  [[nodiscard]] Status adopted(ModelId model, const wire::ModelHeldT& held);
  // Its models are off the device and its ops are withdrawn (state kHeld).
  void engine_lost(EngineId engine);

  [[nodiscard]] Mover& mover() { return mover_; }
  [[nodiscard]] core::WaitReason why(OpId op) const { return parts_.scheduler.why(op); }
  // What the scheduler has learnt of the tenant; none while it has no model and no lease.
  [[nodiscard]] std::optional<core::TenantView> learnt(TenantId tenant) const {
    return parts_.scheduler.tenant(tenant, parts_.clock.now());
  }
  [[nodiscard]] Status admissible(std::uint64_t bytes, ModelId base) const {
    return parts_.scheduler.admissible(bytes, base);
  }
  // Runs what is due; returns when to call again (0: not needed).
  TimePoint tick(TimePoint now);
  // Asks every running op to yield and starts nothing any more.
  void drain();
  [[nodiscard]] bool draining() const { return draining_; }
  [[nodiscard]] bool idle() const { return running_.empty(); }

  void resumed(ModelId model) override;
  void filled(ModelId model) override;
  void resume_failed(ModelId model, const Status& why) override;
  void parked(ModelId model) override;
  void park_failed(ModelId model, const Status& why) override;
  void rolled_back(ModelId model) override;
  void damaged(ModelId model, const Status& why) override;
  void forgotten(ModelId model) override;
  void committed(ModelId model, const state::Position& position) override;
  void commit_ended(ModelId model, const Status& why) override;

 private:
  void post(core::Event event);
  void carry_out(const core::Actions& actions);
  [[nodiscard]] TenantId tenant_of(ModelId model) const;
  [[nodiscard]] bool move_lease(const core::Action& action);
  void start_op(OpId id);
  void begin_op(Op& op);
  [[nodiscard]] const wire::OpArgsUnion& engine_args(Op& op);
  void memory_came();
  void ask_to_yield(OpId id);
  void op_answered(OpId id, const Result<engine::Reply>& reply);
  void op_stopped(Op& op);
  void op_yielded(Op& op);
  void end_op(Op& op, Result<wire::EngineOpDoneT> result);
  void drop_in_engine(const Op& op);
  void restart_generate(ModelId model);
  void back_at_manifest(ModelId model, const Status& why);
  void removed(ModelId model);
  void escalate(TimePoint now);
  void start_park(ModelId model);

  Parts parts_;
  LeaseListener* leases_ = nullptr;
  Mover mover_;
  std::deque<core::Event> events_;
  bool stepping_ = false;
  bool draining_ = false;
  TimePoint wakeup_;
  std::set<OpId> running_;
  std::set<OpId> waits_for_memory_;  // run, and begin when KV that was dropped is free
  std::map<OpId, TimePoint> yield_due_;
  std::map<ModelId, unsigned> resume_failures_;
  std::set<ModelId> removing_;
  std::set<EngineId> held_;
  std::set<EngineId> up_later_;
  std::set<ModelId> park_later_;
};

// The models of leases have numbers of their own, which depend on their op's.
[[nodiscard]] constexpr ModelId lease_model(OpId lease) {
  return ModelId{(std::uint64_t{1} << 62) | lease.value};
}
[[nodiscard]] constexpr bool is_lease(ModelId model) { return (model.value >> 62) == 1; }

}  // namespace plexrl::runtime
