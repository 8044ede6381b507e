// SPDX-License-Identifier: Apache-2.0
#include "sim/simulation.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "sim/alone.h"
#include "sim/demand.h"
#include "sim/rl_job.h"

namespace plexrl::sim {
namespace {

constexpr std::uint64_t kEventsPerLook = 20'000;  // some 10 ms

// What does not change between jobs of a kind.
struct Kind {
  std::vector<RoleSpec> roles;
  KindProfile profile;
  Layout own;
  Layout split_async;
  Layout colocated;
  double shared_gpus = 0;
};

struct LiveJob {
  ArrivingJob job;
  JobOutcome outcome;  // what is known at its arrival
  std::unique_ptr<SimJob> loop;
  std::vector<std::uint64_t> groups;
};

struct LiveGroup {
  std::unique_ptr<SimGroup> group;
  RoleSpec role;
  TimePoint since{};
  std::uint32_t jobs = 0;
  std::uint32_t nodes = 1;
};

class Simulation final : public JobHost {
 public:
  Simulation(const Workload& workload, const RunOptions& options, JobSource& source)
      : workload_(workload), options_(options), source_(source) {}

  [[nodiscard]] Result<RunStats> run();

  void submit(std::uint64_t job, std::size_t side, core::OpKind kind, Duration time,
              std::uint64_t kv_bytes, std::uint64_t token) override;
  void wait(std::uint64_t job, Duration time, std::uint64_t token) override;

 private:
  [[nodiscard]] Status prepare();
  [[nodiscard]] Status next_arrival();
  [[nodiscard]] Status arrive();
  [[nodiscard]] Status check_script(const ArrivingJob& job) const;
  [[nodiscard]] Status handle(const SimEvent& event);
  void place();
  void begin(const core::Placement& placement);
  LiveGroup& group_of(std::uint64_t id, const RoleSpec& role);
  void op_finished(OpId op);
  void end(std::uint64_t number);
  void leave_group(std::uint64_t id, ModelId model);
  [[nodiscard]] JobOutcome outlook_of(const ArrivingJob& job) const;
  void follow_script(const ArrivingJob& job, JobOutcome* outcome) const;
  void follow_steps(const ArrivingJob& job, JobOutcome* outcome) const;
  [[nodiscard]] RoleSpec role_of(const ArrivingJob& job, std::size_t side) const;
  [[nodiscard]] static ModelId model_of(std::uint64_t job, std::size_t side) {
    return {job * 2 + side};
  }

  const Workload& workload_;
  const RunOptions& options_;
  JobSource& source_;
  std::vector<Kind> kinds_;
  std::vector<std::uint32_t> pool_gpus_;
  std::unique_ptr<core::Placer> placer_;
  EventQueue events_;
  TimePoint now_{};
  std::optional<ArrivingJob> arriving_;
  std::unordered_map<std::uint64_t, LiveJob> queued_;
  std::unordered_map<std::uint64_t, LiveJob> live_;
  std::unordered_map<std::uint64_t, LiveGroup> groups_;
  std::unordered_map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> ops_;  // job, token
  std::uint64_t last_op_ = 0;
  RunStats stats_;
};

Status Simulation::prepare() {
  PLEXRL_ASSIGN(placer_, core::Placer::create(options_.placement, placement_pools(workload_)));
  for (const PoolSpec& pool : workload_.pools) pool_gpus_.push_back(pool.gpus);
  core::SchedulerConfig probe;
  probe.device_capacity_bytes = 1;
  probe.policy = options_.policy;
  PLEXRL_TRY(core::Scheduler::create(probe).status());
  for (const JobSpec& spec : workload_.jobs) {
    Kind kind;
    kind.roles = roles_of(workload_, spec);
    kind.profile = profile_of(workload_, spec);
    kind.own = own_layout(workload_, spec);
    kind.split_async = split_async_layout(workload_, spec);
    kind.colocated = colocated_layout(workload_, spec);
    for (const RoleSpec& role : kind.roles)
      kind.shared_gpus += static_cast<double>(role.gpus) / role.sharers;
    kinds_.push_back(std::move(kind));
  }
  return next_arrival();
}

Status Simulation::next_arrival() {
  PLEXRL_ASSIGN(arriving_, source_.next());
  if (!arriving_) return {};
  SimEvent event;
  event.at = std::max(arriving_->arrival, now_);
  event.kind = SimEvent::Kind::kArrival;
  events_.add(event);
  return {};
}

Status Simulation::arrive() {
  ArrivingJob job = std::move(*arriving_);
  PLEXRL_TRY(check_script(job));
  core::PlacementJob wanted = placement_job(workload_, kinds_[job.spec].profile, job.draw);
  PLEXRL_TRY(placer_->submit(wanted, now_).within("jobs." + workload_.jobs[job.spec].name));
  const std::uint64_t number = job.draw.number;
  LiveJob& waiting = queued_[number];
  waiting.outcome = outlook_of(job);
  stats_.arrives(waiting.outcome, pool_gpus_);
  waiting.job = std::move(job);
  PLEXRL_TRY(next_arrival());
  place();
  return {};
}

// A kind's own state was checked with the workload.
Status Simulation::check_script(const ArrivingJob& job) const {
  if (job.script.empty()) return {};
  const RoleSpec role = role_of(job, 0);
  std::uint64_t kv = 0;
  for (const ScriptOp& op : job.script) kv = std::max(kv, op.kv_bytes);
  const std::uint64_t room = device_capacity(workload_.pools[role.pool], role.gpus);
  if (role.device_bytes <= room && kv <= room - role.device_bytes) return {};
  return error(Code::NO_CAPACITY, "job %llu: its model and KV do not fit on its devices",
               static_cast<unsigned long long>(job.draw.number));
}

RoleSpec Simulation::role_of(const ArrivingJob& job, std::size_t side) const {
  RoleSpec role = kinds_[job.spec].roles[side];
  if (job.script_bytes > 0) role.device_bytes = job.script_bytes;
  return role;
}

void Simulation::place() {
  for (const core::Placement& placement : placer_->place(now_)) begin(placement);
  if (options_.observer != nullptr) options_.observer->queue_is(placer_->queued(), now_);
  for (std::uint32_t pool = 0; pool < workload_.pools.size(); ++pool)
    stats_.saw_held_gpus(pool, workload_.pools[pool].gpus - placer_->free_gpus(pool));
}

void Simulation::begin(const core::Placement& placement) {
  const std::uint64_t number = placement.job.value;
  const auto queued = queued_.find(number);
  LiveJob& live = live_[number];
  live = std::move(queued->second);
  queued_.erase(queued);
  live.outcome.start = now_;
  for (std::size_t side = 0; side < placement.groups.size(); ++side) {
    const std::uint64_t id = placement.groups[side].value;
    const RoleSpec role = role_of(live.job, side);
    LiveGroup& group = group_of(id, role);
    ++group.jobs;
    group.group->add_model(model_of(number, side), {number}, role.device_bytes, 100, now_);
    stats_.saw_host_bytes(placer_->host_bytes({id}) / group.nodes);
    live.groups.push_back(id);
  }
  if (live.job.script.empty()) {
    live.loop = std::make_unique<RlJob>(live.job.draw, live.groups.size() == 2, this);
  } else {
    live.loop = std::make_unique<ScriptJob>(number, live.job.script, this);
  }
  live.loop->start();
}

LiveGroup& Simulation::group_of(std::uint64_t id, const RoleSpec& role) {
  LiveGroup& group = groups_[id];
  if (group.group != nullptr) return group;
  const PoolSpec& pool = workload_.pools[role.pool];
  GroupConfig config;
  config.id = id;
  config.pool = &pool;
  config.gpus = role.gpus;
  config.scheduler.device_capacity_bytes = device_capacity(pool, role.gpus);
  config.scheduler.policy = options_.policy;
  config.scheduler.quantum = duration_of(workload_.quantum_s);
  config.yield = duration_of(workload_.yield_s);
  group.group = std::make_unique<SimGroup>(config, &events_, options_.observer);
  group.role = role;
  group.since = now_;
  group.nodes = std::max(1U, (role.gpus + pool.gpus_per_node - 1) / pool.gpus_per_node);
  if (options_.observer != nullptr) options_.observer->group_opened(id, role, now_);
  return group;
}

void Simulation::submit(std::uint64_t job, std::size_t side, core::OpKind kind, Duration time,
                        std::uint64_t kv_bytes, std::uint64_t token) {
  const OpId id{++last_op_};
  ops_.emplace(id.value, std::pair(job, token));
  SimGroup& group = *groups_.at(live_.at(job).groups[side]).group;
  group.submit({id, model_of(job, side), kind, time, kv_bytes}, now_);
}

void Simulation::wait(std::uint64_t job, Duration time, std::uint64_t token) {
  events_.add({now_ + time, 0, SimEvent::Kind::kTimer, job, token, 0});
}

Status Simulation::handle(const SimEvent& event) {
  now_ = event.at;
  if (event.kind == SimEvent::Kind::kArrival) return arrive();
  if (event.kind == SimEvent::Kind::kTimer) {
    live_.at(event.subject).loop->waited(event.number);
    return {};
  }
  const auto group = groups_.find(event.subject);
  if (group == groups_.end()) return {};  // a tick or a move of a group that is gone
  ++stats_.scheduler_events;
  if (const OpId op = group->second.group->handle(event)) op_finished(op);
  return {};
}

void Simulation::op_finished(OpId op) {
  const auto entry = ops_.find(op.value);
  const auto [number, token] = entry->second;
  ops_.erase(entry);
  SimJob& loop = *live_.at(number).loop;
  loop.op_finished(token);
  if (loop.done()) end(number);
}

void Simulation::end(std::uint64_t number) {
  LiveJob& live = live_.at(number);
  live.outcome.end = now_;
  stats_.add(live.outcome);
  if (options_.observer != nullptr) options_.observer->ended(live.outcome);
  for (std::size_t side = 0; side < live.groups.size(); ++side)
    leave_group(live.groups[side], model_of(number, side));
  live_.erase(number);
  placer_->finished({number});
  place();
}

void Simulation::leave_group(std::uint64_t id, ModelId model) {
  LiveGroup& group = groups_.at(id);
  if (--group.jobs > 0) return group.group->remove_model(model, now_);
  const SimGroup::Times times = group.group->times(now_);
  stats_.add({now_ - group.since, times.busy, times.exposed, group.role.gpus,
              group.role.kind != RoleKind::kRollout});
  if (options_.observer != nullptr) options_.observer->group_closed(id, now_);
  groups_.erase(id);
}

JobOutcome Simulation::outlook_of(const ArrivingJob& job) const {
  const Kind& kind = kinds_[job.spec];
  JobOutcome outcome;
  outcome.number = job.draw.number;
  outcome.spec = job.spec;
  outcome.arrival = job.arrival;
  outcome.gpus = kind.own.gpus;
  outcome.colocated_gpus = kind.colocated.gpus;
  outcome.shared_gpus = kind.shared_gpus;
  outcome.least_gpu_s.resize(workload_.pools.size());
  if (job.script.empty()) {
    follow_steps(job, &outcome);
  } else {
    follow_script(job, &outcome);
  }
  return outcome;
}

void Simulation::follow_script(const ArrivingJob& job, JobOutcome* outcome) const {
  const RoleSpec role = role_of(job, 0);
  const Duration move = move_time(workload_.pools[role.pool], role.gpus, role.device_bytes);
  outcome->alone = script_alone_time(job.script, move);
  outcome->split_async = outcome->colocated = outcome->alone;
  Duration busy{};
  for (const ScriptOp& op : job.script) busy.ns += op.time.ns;
  outcome->least_gpu_s[role.pool] =
      role.gpus * std::max(seconds_of(busy), seconds_of(outcome->alone) / role.sharers);
}

void Simulation::follow_steps(const ArrivingJob& job, JobOutcome* outcome) const {
  const Kind& kind = kinds_[job.spec];
  const JobSpec& spec = *job.draw.spec;
  AloneClock own(kind.own), split_async(kind.split_async), colocated(kind.colocated);
  Duration rollout{}, train{};
  for (std::uint64_t step = 0; step < job.draw.steps; ++step) {
    const StepTimes times = step_times(job.draw, step);
    own.step(spec, times);
    split_async.step(spec, times);
    colocated.step(spec, times);
    rollout.ns += times.turn.ns * spec.turns;
    train.ns += times.logprobs.ns + times.train(spec).ns + times.sync.ns;
  }
  outcome->alone = own.end();
  outcome->split_async = split_async.end();
  outcome->colocated = colocated.end();
  for (const RoleSpec& role : kind.roles) {
    const double busy = (role.kind == RoleKind::kTrain ? 0 : seconds_of(rollout)) +
                        (role.kind == RoleKind::kRollout ? 0 : seconds_of(train));
    outcome->least_gpu_s[role.pool] +=
        role.gpus * std::max(busy, seconds_of(outcome->alone) / role.sharers);
  }
}

Result<RunStats> Simulation::run() {
  PLEXRL_TRY(prepare());
  std::uint64_t handled = 0;
  while (!events_.empty()) {
    PLEXRL_TRY(handle(events_.take()));
    if (++handled % kEventsPerLook == 0 && options_.progress &&
        !options_.progress(stats_.jobs, now_))
      return error(Code::CANCELLED, "the simulation was interrupted");
  }
  PLEXRL_CHECK(live_.empty() && queued_.empty(), "every job of a run ends");
  return std::move(stats_);
}

}  // namespace

Result<RunStats> simulate(const Workload& workload, const RunOptions& options, JobSource& source) {
  return Simulation(workload, options, source).run();
}

}  // namespace plexrl::sim
