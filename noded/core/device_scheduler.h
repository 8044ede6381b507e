// SPDX-License-Identifier: Apache-2.0
// DeviceScheduler: the Scheduler. Works towards one op at a time, the target: the policy names it,
// room is made for its model, and it starts when the device is free. While another op runs the next
// target is prepared, so that moves overlap with work; a running rollout is asked to yield only
// when the target can start at once or needs the rollout's own memory.
//
// Generate ops of one base run as a batch: when one starts, those that fit start with it, and a
// target that fits joins those that run. Nobody joins past another tenant's op that does not fit,
// so a batch that somebody waits for only becomes smaller, and no op joins once a member was asked
// to yield.
//
// Why nothing starves: once memory moves for a target, it stays the target until it starts, is
// cancelled, or cannot go on (engine down, move failed); so no two models evict each other without
// running. A target that cannot go on is set aside for a growing pause. The policy gives every
// waiting tenant its turn, and a tenant its oldest op after a bounded number of others.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "core/op_table.h"
#include "core/policy.h"
#include "core/residency.h"
#include "core/scheduler.h"
#include "core/tenant_ledger.h"

namespace plexrl::core {

class DeviceScheduler final : public Scheduler, private OpListener {
 public:
  explicit DeviceScheduler(const SchedulerConfig& config);
  [[nodiscard]] bool has_policy() const { return policy_ != nullptr; }  // its name is known

  [[nodiscard]] Actions step(const Event& event, TimePoint now) override;
  [[nodiscard]] Status admissible(std::uint64_t device_bytes, ModelId base) const override;
  [[nodiscard]] WaitReason why(OpId op) const override;
  [[nodiscard]] std::optional<TenantView> tenant(TenantId tenant, TimePoint now) const override;
  [[nodiscard]] std::vector<ModelId> waiting_models() const override;
  [[nodiscard]] std::string snapshot() const override;
  [[nodiscard]] Status load(std::string_view snapshot);  // into a new object

 private:
  enum class Readiness : std::uint8_t { kReady, kMoving, kNeedsRunning, kStuck };
  struct Running {
    OpId op;
    ModelId model;
    TenantId tenant;
    std::uint32_t share_percent = 100;
    TimePoint started;
    bool yield_asked = false;
    std::uint64_t rows = 1;
  };
  struct Engine {
    bool up = false;
    std::set<ModelId> models;
  };

  // One per event.
  void on(const ModelAdded& event);
  void on(const ModelRemoved& event);
  void on(const OpArrived& event);
  void on(const OpCancelled& event);
  void on(const OpYielded& event);
  void on(const OpFinished& event);
  void on(const ModelResumed& event);
  void on(const ModelParked& event);
  void on(const MoveFailed& event);
  void on(const EngineUp& event);
  void on(const EngineDown& event);
  void on(const Tick&) {}
  void on(const TenantBound& event);

  void tenant_waits(TenantId tenant) override;
  void tenant_rests(TenantId tenant) override;
  void tenant_gone(TenantId tenant) override;
  void op_gone(TenantId tenant, const Op& op) override;

  // What to do next.
  void decide();
  void park_removed();
  [[nodiscard]] bool choose_target();
  [[nodiscard]] Readiness prepare_target();
  [[nodiscard]] std::uint64_t missing_bytes(const Op& op) const;
  [[nodiscard]] Readiness make_room(std::uint64_t bytes);
  [[nodiscard]] Readiness bring_in();
  void start_target();
  void start(OpId id);
  [[nodiscard]] bool joins(OpId id) const;
  [[nodiscard]] bool fits_batch(const Op& op) const;
  void start_companions();
  void maybe_yield(Readiness readiness);
  [[nodiscard]] std::optional<Duration> run_left(const Running& running, const Op& next) const;
  void ask_to_yield(Running& running);
  void end_at_limit();
  void set_wakeup();

  // Predictions.
  [[nodiscard]] Offer offer_of(TenantId tenant) const;
  [[nodiscard]] Runner runner(const Running& running) const;
  [[nodiscard]] Runner resting(TenantId tenant, OpKind last) const;
  [[nodiscard]] std::uint64_t move_bytes(const Op& op) const;
  [[nodiscard]] Moment moment() const;
  void set_place(ModelId model, Place place);  // and what it changes for those that wait
  void learn_move(const ModelEntry& model);
  void expect_ops(const ModelEntry& model);  // an op of its tenant has arrived
  void expect_rest(TenantId tenant);         // an op has left; perhaps the last
  [[nodiscard]] Duration switch_cost(std::uint64_t bytes) const;
  [[nodiscard]] bool hold();
  void prefetch();
  void make_room_ahead(ModelId next, std::uint64_t bytes);
  [[nodiscard]] WaitReason wait_for(const Op& op, WaitReason::Kind kind, TenantId holder) const;
  [[nodiscard]] WaitReason wait_for_switch(const Op& op) const;

  // Bookkeeping.
  void end_run(OpId id);  // charges, and frees the device when it was the last
  void charge(TimePoint until);
  [[nodiscard]] std::uint64_t batch_rows() const;  // of all that runs
  void release(OpId op);                           // the op is gone, with its KV
  void lose(ModelId model);                        // off the device because its engine died
  void set_aside(ModelId model);                   // until a pause is over
  void end_pauses();
  void update_runnable(ModelId model);
  void erase_if_gone(ModelId model);
  void request(ModelId model, Place place);
  [[nodiscard]] bool runnable(const ModelEntry& entry) const;
  [[nodiscard]] bool engine_up(EngineId engine) const;
  void encode_body(ByteWriter& out) const;
  void decode_body(ByteReader& in);
  void decode_running(ByteReader& in);
  void decode_engines(ByteReader& in);
  [[nodiscard]] bool agree() const;
  void rebuild();

  SchedulerConfig config_;
  std::string policy_name_;
  CostModel costs_;
  TenantLedger ledger_;
  std::unique_ptr<Policy> policy_;
  OpTable ops_;
  Residency models_;
  std::map<EngineId, Engine> engines_;
  std::set<ModelId> removed_;                       // still on the device
  std::set<std::pair<TimePoint, ModelId>> pauses_;  // after failed moves
  std::map<OpId, Running> running_;
  TimePoint charged_until_;
  OpId target_;           // recomputed at every step
  ModelId committed_;     // memory moves for this one; none: the target is free to change
  TimePoint yield_at_{};  // 0: no quantum runs out
  TimePoint now_{};
  Actions out_;
};

}  // namespace plexrl::core
