// SPDX-License-Identifier: Apache-2.0
// SimGroup: one device group in virtual time. Its decisions are those of a real core::Scheduler; it
// carries them out: ops run for the time that they were given, models move at the pool's bandwidth.
//
//   resume  latency + (state + parked gradients + parked KV) / bandwidth, one after the other
//   park    what is not yet copied out: after an optim_step the commit copies the state out in the
//           background, so parking waits for the rest of it; gradients inside an accumulation (4
//           bytes per parameter, a quarter of the state) and KV are copied then
//
// Copies in and out do not slow each other or the ops.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>

#include "core/scheduler.h"
#include "sim/event_queue.h"
#include "sim/workload.h"

namespace plexrl::sim {

struct GroupConfig {
  std::uint64_t id = 0;
  const PoolSpec* pool = nullptr;  // outlives the group
  std::uint32_t gpus = 0;
  core::SchedulerConfig scheduler;
  Duration yield{};
};

struct SimOp {
  OpId id;
  ModelId model;
  core::OpKind kind = core::OpKind::kNone;
  Duration time{};  // on the device, undisturbed
  std::uint64_t kv_bytes = 0;
};

// What runs, for a timeline.
class GroupObserver {
 public:
  virtual ~GroupObserver() = default;
  virtual void ran(std::uint64_t group, TenantId tenant, core::OpKind kind, TimePoint from,
                   TimePoint to) = 0;
};

class SimGroup {
 public:
  // `events` takes what is to come, with `config.id` as subject; both pointers outlive the group.
  SimGroup(const GroupConfig& config, EventQueue* events, GroupObserver* observer);

  // A model that is added is parked.
  void add_model(ModelId model, TenantId tenant, std::uint64_t bytes, std::uint32_t share_percent,
                 TimePoint now);
  void remove_model(ModelId model, TimePoint now);
  void submit(const SimOp& op, TimePoint now);
  // An event of the queue for this group. The op that it finished, or none.
  [[nodiscard]] OpId handle(const SimEvent& event);

  struct Times {
    Duration busy{};     // an op ran
    Duration exposed{};  // none ran, one waited, and state was moved
  };
  [[nodiscard]] Times times(TimePoint now);
  [[nodiscard]] const GroupConfig& config() const { return config_; }

 private:
  struct Model {
    TenantId tenant;
    std::uint64_t bytes = 0;
    std::uint64_t kv_bytes = 0;  // of a started op
    bool gradients = false;      // inside an accumulation
    bool moves = false;
    bool in = false;  // moves in
    bool removed = false;
    TimePoint committed_at{};  // when the last commit is copied out
  };
  struct Op {
    SimOp spec;
    bool started = false;
    std::uint64_t version = 0;
    TimePoint since{};
  };
  void step(const core::Event& event, TimePoint now);
  void act(const core::StartOp& action);
  void act(const core::YieldOp& action);
  void act(const core::ResumeModel& action);
  void act(const core::ParkModel& action);
  void account(TimePoint now);
  void stop_running(Op& op, TimePoint now);
  [[nodiscard]] OpId finish(OpId id, TimePoint now);
  void yielded(OpId id, TimePoint now);
  void forget_model(ModelId model, TimePoint now);
  void move_ended(ModelId id, TimePoint now);
  [[nodiscard]] Duration copy_time(std::uint64_t bytes) const;
  [[nodiscard]] Model& moving(ModelId id, bool in);
  void later(SimEvent::Kind kind, TimePoint at, std::uint64_t number, std::uint64_t version);

  GroupConfig config_;
  EventQueue* events_;
  GroupObserver* observer_;
  std::unique_ptr<core::Scheduler> scheduler_;
  std::map<ModelId, Model> models_;
  std::unordered_map<std::uint64_t, Op> ops_;
  OpId running_;
  std::uint32_t moves_ = 0;
  TimePoint now_{};
  TimePoint wakeup_{};
  TimePoint copied_in_at_{};  // when the copies in so far are done
  TimePoint copied_out_at_{};
  TimePoint accounted_until_{};
  Times times_;
};

}  // namespace plexrl::sim
