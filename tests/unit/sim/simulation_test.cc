// SPDX-License-Identifier: Apache-2.0
#include "sim/simulation.h"

#include "sim/alone.h"
#include "unit/sim/sim_fixture.h"

namespace plexrl::sim {
namespace {

class Outcomes final : public RunObserver {
 public:
  void ran(std::uint64_t, TenantId, core::OpKind, TimePoint from, TimePoint to) override {
    busy_ns += (to - from).ns;
  }
  void group_opened(std::uint64_t, const RoleSpec&, TimePoint) override { ++opened; }
  void group_closed(std::uint64_t, TimePoint) override { ++closed; }
  void queue_is(std::size_t queued, TimePoint) override { longest = std::max(longest, queued); }
  void ended(const JobOutcome& job) override { jobs.push_back(job); }

  std::int64_t busy_ns = 0;
  int opened = 0;
  int closed = 0;
  std::size_t longest = 0;
  std::vector<JobOutcome> jobs;
};

// The recurrences that every slowdown is measured by, against the simulator.
TEST(Simulation, AJobAloneTakesWhatTheRecurrencesSay) {
  for (std::uint32_t lag = 0; lag <= 3; ++lag)
    for (const std::uint32_t turns : {1U, 4U})
      for (const bool one_group : {false, true}) {
        if (one_group && lag > 0) continue;
        Workload workload = small_workload(6, lag);
        workload.jobs[0].turns = turns;
        if (one_group) workload.jobs[0].rollout_gpus = 0;
        Outcomes outcomes;
        RunOptions alone = options("isolated");
        alone.observer = &outcomes;
        run(workload, alone);
        ASSERT_EQ(outcomes.jobs.size(), 6U);
        for (const JobOutcome& job : outcomes.jobs)
          EXPECT_EQ((job.end - job.start).ns, job.alone.ns)
              << "lag " << lag << " turns " << turns << " one group " << one_group;
      }
}

TEST(Simulation, TheSameSeedGivesTheSameRun) {
  Workload workload = small_workload(12, 0);
  workload.interarrival_s = {Distribution::Kind::kExponential, 100};
  const RunStats first = run(workload, options("pack"));
  const RunStats again = run(workload, options("pack"));
  EXPECT_EQ(first.last_end, again.last_end);
  EXPECT_EQ(first.device_s, again.device_s);
  EXPECT_EQ(first.mean_slowdown(), again.mean_slowdown());
  RunOptions other = options("pack");
  other.seed = 2;
  EXPECT_NE(run(workload, other).last_end, first.last_end);
}

// Two patient jobs on one training group of 8, each with 4 GPUs of its own for rollouts.
TEST(Simulation, SharingSavesWhatTheClosedFormSays) {
  Workload workload = small_workload(8);
  workload.jobs[0].rollout_s = Distribution::constant(100);
  workload.jobs[0].train_s = Distribution::constant(20);
  const RunStats stats = run(workload, options("pack"));
  EXPECT_NEAR(stats.closed_form_bound(), 8.0 / (2 * 12), 1e-9);
  EXPECT_NEAR(1 - stats.device_s / stats.isolated_device_s, stats.closed_form_bound(), 0.02);
  EXPECT_LT(stats.mean_slowdown(), 1.05);
  EXPECT_GE(stats.mean_slowdown(), 1);
}

TEST(Simulation, AloneNothingIsSavedOrSlowed) {
  const RunStats stats = run(small_workload(4), options("isolated"));
  EXPECT_NEAR(stats.device_s / stats.isolated_device_s, 1, 0.01);
  EXPECT_DOUBLE_EQ(stats.mean_slowdown(), 1);
  EXPECT_DOUBLE_EQ(stats.slowdown_quantile(0.99), 1);
  EXPECT_DOUBLE_EQ(stats.jain(), 1);
}

TEST(Simulation, SynchronousJobsOnOneGroupAreSlowed) {
  Workload workload = small_workload(4, 0);
  workload.jobs[0].rollout_gpus = 0;
  workload.jobs[0].train_sharers = 4;
  workload.jobs[0].tool_s = Distribution::constant(0);
  workload.pools[0].gpus = 8;
  const RunStats stats = run(workload, options("pack"));
  // Their device time fills their steps, so four take four times as long.
  EXPECT_NEAR(stats.mean_slowdown(), 4, 0.4);
  EXPECT_GT(stats.busy_s / stats.device_s, 0.9);
}

TEST(Simulation, StateThatDoesNotFitTogetherIsSwitched) {
  Workload workload = small_workload(2);
  workload.pools[0].device_gb = 40 + 7 * 16 / 8 + 1;  // one job's training state and 8 GB
  const RunStats stats = run(workload, options("pack"));
  EXPECT_GT(stats.exposed_s, 0);
  workload.pools[0].device_gb = 80;
  const RunStats together = run(workload, options("pack"));
  EXPECT_LT(together.exposed_s, stats.exposed_s);
}

TEST(Simulation, JobsThatDoNotFitWait) {
  Workload workload = small_workload(10);
  workload.pools[0].gpus = 24;
  Outcomes outcomes;
  RunOptions alone = options("isolated");
  alone.observer = &outcomes;
  const RunStats stats = run(workload, alone);
  EXPECT_EQ(stats.jobs, 10U);
  EXPECT_EQ(outcomes.longest, 8U) << "three nodes hold two jobs' 8 and 4 GPUs";
  EXPECT_GT(stats.queued_s, 0);
  EXPECT_EQ(outcomes.opened, 20);
  EXPECT_EQ(outcomes.closed, 20);
  EXPECT_LE(stats.gpus_peak.at(0), 24U);
}

TEST(Simulation, TimelineAddsUpToTheBusyTime) {
  Workload workload = small_workload(6, 0);
  Outcomes outcomes;
  RunOptions shared = options("pack");
  shared.observer = &outcomes;
  workload.jobs[0].rollout_gpus = 8;  // all groups have as many GPUs
  const RunStats stats = run(workload, shared);
  EXPECT_NEAR(static_cast<double>(outcomes.busy_ns) * 1e-9 * 8, stats.busy_s, 1e-3);
}

TEST(Simulation, LoadSetsTheGapBetweenArrivals) {
  Workload workload = small_workload(400);
  // Alone 12 GPUs for about 2,100 s each: at load 1 on 64 GPUs one job comes every 400 s or so.
  const double gap = mean_gap(workload, 1);
  EXPECT_NEAR(mean_gap(workload, 2), gap / 2, 1e-9);
  RunOptions loaded = options("isolated");
  loaded.load = 1;
  const RunStats stats = run(workload, loaded);
  EXPECT_NEAR(stats.isolated_device_s / (400 * gap * 64), 1, 0.05);
}

TEST(Simulation, SaysWhatIsWrong) {
  EXPECT_EQ(try_run(small_workload(1), options("best")).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(try_run(small_workload(1), options("pack", "none")).error().code(),
            Code::INVALID_ARGUMENT);
  Workload workload = small_workload(1);
  workload.pools[0].host_gb_per_node = 1;
  EXPECT_EQ(try_run(workload, options("pack")).error().code(), Code::NO_CAPACITY);
  workload = small_workload(1);
  workload.jobs[0].train_pool = "none";
  EXPECT_FALSE(check_workload(workload).ok());
  workload = small_workload(1);
  workload.jobs[0].parameters_b = 700;
  EXPECT_FALSE(check_workload(workload).ok());
}

TEST(Simulation, CanBeCancelled) {
  Workload workload = small_workload(200);
  RunOptions cancelled = options("isolated");
  cancelled.progress = [](std::uint64_t, TimePoint) { return false; };
  EXPECT_EQ(try_run(workload, cancelled).error().code(), Code::CANCELLED);
}

// Scripts: the device of a recorded job alone is the simulator's, too.
TEST(Simulation, AScriptAloneTakesWhatItsOwnDeviceSays) {
  using core::OpKind;
  const std::vector<ScriptOp> script = {
      {OpKind::kGenerate, 0, duration_of(1), duration_of(5), 10},
      {OpKind::kForwardBackward, 1, {}, duration_of(2), 0},
      {OpKind::kOptimStep, 1, {}, duration_of(1), 0},
      {OpKind::kGenerate, 1, duration_of(0.5), duration_of(4), 10},
      {OpKind::kLogprobs, 3, duration_of(2), duration_of(1), 0}};
  class Source final : public JobSource {
   public:
    explicit Source(ArrivingJob job) : job_(std::move(job)) {}
    Result<std::optional<ArrivingJob>> next() override { return std::exchange(job_, std::nullopt); }
    [[nodiscard]] std::uint64_t expected_jobs() const override { return 1; }

   private:
    std::optional<ArrivingJob> job_;
  };
  Workload workload = small_workload(1, 0);
  workload.jobs[0].rollout_gpus = 0;
  ArrivingJob job;
  job.draw = draw_job(workload.jobs[0], 1, 1);
  job.script = script;
  Source source(job);
  Outcomes outcomes;
  RunOptions alone = options("isolated");
  alone.observer = &outcomes;
  ASSERT_TRUE(simulate(workload, alone, source));
  ASSERT_EQ(outcomes.jobs.size(), 1U);
  EXPECT_EQ((outcomes.jobs[0].end - outcomes.jobs[0].start).ns, outcomes.jobs[0].alone.ns);
  EXPECT_GT(outcomes.jobs[0].alone.ns, duration_of(13).ns);
}

}  // namespace
}  // namespace plexrl::sim
