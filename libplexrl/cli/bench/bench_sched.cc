// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_sched.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <string>

#include "cli/bench/op_load.h"
#include "core/placement.h"
#include "core/scheduler.h"

namespace plexrl::cli {
namespace {

using Steady = std::chrono::steady_clock;
using core::Action;

constexpr std::uint64_t kModelBytes = std::uint64_t{1} << 30;
constexpr EngineId kEngine{1};
constexpr core::OpKind kKinds[] = {core::OpKind::kGenerate, core::OpKind::kForwardBackward,
                                   core::OpKind::kOptimStep, core::OpKind::kLogprobs};

double since(Steady::time_point begin, double per_second) {
  return std::chrono::duration<double>(Steady::now() - begin).count() * per_second;
}

// One device group whose tenants always have ops; a tenth of the models fit on it. Actions are
// carried out at once, in virtual time; only the steps are measured.
class Group {
 public:
  Group(core::Scheduler& scheduler, const BenchSchedOptions& options)
      : scheduler_(scheduler), options_(options) {}

  void fill() {
    step(core::EngineUp{kEngine});
    for (std::uint64_t n = 1; n <= options_.tenants; ++n)
      step(core::ModelAdded{{n}, {n}, kEngine, {}, kModelBytes, 100});
    for (std::uint32_t n = 0; n < options_.ops; ++n) arrive();
  }
  // The measured part: an op ends, another arrives, models move. False: it ran dry.
  [[nodiscard]] bool run() {
    times_us_.clear();
    while (times_us_.size() < options_.steps) {
      if (todo_.empty()) return false;
      const Action action = todo_.front();
      todo_.pop_front();
      std::visit([this](const auto& what) { carry_out(what); }, action);
    }
    return true;
  }
  [[nodiscard]] std::vector<double>& times_us() { return times_us_; }

 private:
  void step(const core::Event& event) {
    const auto begin = Steady::now();
    core::Actions actions = scheduler_.step(event, now_);
    times_us_.push_back(since(begin, 1e6));
    todo_.insert(todo_.end(), actions.list.begin(), actions.list.end());
  }
  void arrive() {
    ++last_op_;
    const ModelId model{1 + last_op_ % options_.tenants};
    step(core::OpArrived{
        {last_op_}, model, kKinds[last_op_ / options_.tenants % 4], 0, 512, {}, {}});
  }
  void carry_out(const core::StartOp& start) {
    now_ = now_ + Duration{5 * kMillisecond.ns};
    step(core::OpFinished{start.op});
    arrive();
  }
  // Ops end before they are asked.
  void carry_out(const core::YieldOp&) {}
  void carry_out(const core::ResumeModel& resume) {
    now_ = now_ + Duration{20 * kMillisecond.ns};
    step(core::ModelResumed{resume.model});
  }
  void carry_out(const core::ParkModel& park) {
    now_ = now_ + Duration{20 * kMillisecond.ns};
    step(core::ModelParked{park.model});
  }

  core::Scheduler& scheduler_;
  const BenchSchedOptions& options_;
  TimePoint now_{1};
  std::uint64_t last_op_ = 0;
  std::deque<Action> todo_;
  std::vector<double> times_us_;
};

Result<nlohmann::json> measure_steps(std::string_view policy, const BenchSchedOptions& options) {
  core::SchedulerConfig config;
  config.device_capacity_bytes = std::max<std::uint64_t>(options.tenants / 10, 1) * kModelBytes;
  config.policy = policy;
  PLEXRL_ASSIGN(const auto scheduler, core::Scheduler::create(config));
  Group group(*scheduler, options);
  group.fill();
  if (!group.run())
    return error(Code::INTERNAL, "bench sched: the schedule of policy %s ran dry",
                 std::string(policy).c_str());
  std::vector<double>& times = group.times_us();
  const double median = percentile(times, 50);
  return nlohmann::json{{"policy", policy},           {"tenants", options.tenants},
                        {"ops", options.ops},         {"steps", times.size()},
                        {"step_us_p50", median},      {"step_us_p99", percentile(times, 99)},
                        {"step_us_max", times.back()}};
}

// Jobs of one to eight devices with roles of their own, as tests/unit/core has them.
core::PlacementJob job_of(std::uint64_t id) {
  core::RoleDemand role;
  role.gpus = 1U << id % 4;
  role.max_sharers = 4;
  role.host_bytes = (std::uint64_t{20} << 30) * role.gpus;
  role.busy = Duration{static_cast<std::int64_t>(20 + id % 30) * kSecond.ns};
  role.burst = role.busy;
  role.moves = Duration{2 * kSecond.ns};
  core::PlacementJob job;
  job.id = {id};
  job.roles = {role};
  job.step = Duration{200 * kSecond.ns};
  job.expected_run = Duration{static_cast<std::int64_t>(1000 + id % 7 * 500) * kSecond.ns};
  return job;
}

Result<nlohmann::json> measure_placement(std::string_view policy,
                                         const BenchSchedOptions& options) {
  const std::uint64_t host_bytes = std::uint64_t{2000} << 30;
  PLEXRL_ASSIGN(const auto placer, core::Placer::create(policy, {{options.nodes, 8, host_bytes}}));
  const auto begin = Steady::now();
  for (std::uint64_t id = 1; id <= options.jobs; ++id)
    PLEXRL_TRY(placer->submit(job_of(id), TimePoint{1}));
  const std::size_t placed = placer->place(TimePoint{1}).size();
  return nlohmann::json{{"placement", policy},
                        {"jobs", options.jobs},
                        {"devices", options.nodes * 8},
                        {"placed", placed},
                        {"placement_ms", since(begin, 1e3)}};
}

}  // namespace

Result<nlohmann::json> bench_sched(const BenchSchedOptions& options) {
  if (options.tenants == 0 || options.ops < options.tenants || options.steps == 0)
    return error(Code::INVALID_ARGUMENT,
                 "bench sched: give at least one tenant, one step, and an op for each tenant");
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string_view policy : {"fifo", "round-robin", "hrrs", "least-slowdown"}) {
    PLEXRL_ASSIGN(auto row, measure_steps(policy, options));
    rows.push_back(std::move(row));
  }
  for (const std::string_view policy : core::Placer::policies()) {
    PLEXRL_ASSIGN(auto row, measure_placement(policy, options));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace plexrl::cli
