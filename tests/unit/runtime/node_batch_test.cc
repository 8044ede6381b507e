// SPDX-License-Identifier: Apache-2.0
// Generate ops of several jobs that run as one batch: results, accounts, cancels, deaths, restarts.
#include "unit/runtime/node_fixture.h"

namespace plexrl::runtime {
namespace {

constexpr std::uint64_t kDeadly = 666;

class NodeBatch : public NodeFixture {
 protected:
  struct Job {
    TenantId tenant;
    std::uint64_t model = 0;
  };
  void start_jobs(std::uint32_t count) {
    fake_options_.die_at_seed = kDeadly;
    config_.pools[0].host_memory_mib = 8;
    start();
    for (std::uint32_t n = 1; n <= count; ++n) {
      Job job{open_job(n, 1000 + n), 0};
      job.model = model(job.tenant);
      jobs_.push_back(job);
    }
    bring_in();
  }
  // All models on the device.
  void bring_in() {
    for (std::size_t job = 0; job < jobs_.size(); ++job) (void)tokens(sample(job, 1));
  }
  void take(Duration op_time) { fake().options().op_time = op_time; }
  std::shared_ptr<Pending> sample(std::size_t job, std::uint64_t seed, std::uint64_t request = 0) {
    return submit(jobs_[job].tenant, jobs_[job].model, 0, generate(0, seed), request);
  }
  std::vector<std::int32_t> tokens(const std::shared_ptr<Pending>& pending) {
    const OpOutcome outcome = wait(pending);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
    const auto* const result = outcome.reply.value.AsGenerateResult();
    return result == nullptr ? std::vector<std::int32_t>{} : result->sequences[0]->tokens;
  }
  std::size_t running() {
    std::size_t count = 0;
    for (const auto& [id, op] : node_->ops().all()) count += op.state == OpState::kRunning;
    return count;
  }

  std::vector<Job> jobs_;
};

TEST_F(NodeBatch, SamplesAreThoseOfRunningAlone) {
  start_jobs(4);
  std::vector<std::vector<std::int32_t>> alone;
  for (std::size_t job = 0; job < 4; ++job) alone.push_back(tokens(sample(job, 10 + job)));
  take(Duration{20 * kMillisecond.ns});
  std::vector<std::shared_ptr<Pending>> together;
  for (std::size_t job = 0; job < 4; ++job) together.push_back(sample(job, 10 + job));
  EXPECT_EQ(running(), 4U);
  for (std::size_t job = 0; job < 4; ++job) EXPECT_EQ(tokens(together[job]), alone[job]);
}

TEST_F(NodeBatch, TheDevicesTimeIsSharedOut) {
  start_jobs(2);
  const auto device_ns = [&](std::size_t job) {
    return node_->accounting().totals(jobs_[job].tenant).device_ns;
  };
  const auto busy_ns = [&] { return node_->accounting().device().busy_ns; };
  const std::int64_t before = busy_ns() - device_ns(0) - device_ns(1);
  take(Duration{20 * kMillisecond.ns});
  const auto first = sample(0, 1);
  const auto second = sample(1, 1);
  ASSERT_EQ(running(), 2U);
  (void)tokens(first);
  (void)tokens(second);
  EXPECT_EQ(busy_ns() - device_ns(0) - device_ns(1), before) << "the parts add up";
  EXPECT_GT(device_ns(0), 0);
  EXPECT_GT(device_ns(1), 0);
}

TEST_F(NodeBatch, TrainingWaitsForTheWholeBatchToMakeWay) {
  start_jobs(3);
  take(Duration{500 * kMillisecond.ns});
  const auto first = sample(0, 1);
  const auto second = sample(1, 1);
  const auto training = submit(jobs_[2].tenant, jobs_[2].model, 1, train(1));
  ASSERT_TRUE(turn_until([&] { return node_->accounting().computes(jobs_[2].tenant); }));
  EXPECT_EQ(running(), 1U);
  EXPECT_FALSE(first->outcome || second->outcome);
  EXPECT_TRUE(wait(training).status.ok());
  EXPECT_TRUE(wait(first).status.ok());
  EXPECT_TRUE(wait(second).status.ok());
}

TEST_F(NodeBatch, ACancelledOneLeavesTheOthersAlone) {
  start_jobs(2);
  take(Duration{200 * kMillisecond.ns});
  const auto first = sample(0, 1, 41);
  const auto second = sample(1, 1, 42);
  ASSERT_EQ(running(), 2U);
  node_->op_service().cancel(session_, 41);
  EXPECT_EQ(wait(first).status.code(), Code::CANCELLED);
  EXPECT_FALSE(second->outcome);
  EXPECT_TRUE(wait(second).status.ok());
}

// One of four ends the engine whenever it runs. It is given up; the others are not, as they are not
// with it again.
TEST_F(NodeBatch, WhoKillsItsEngineTakesNobodyElseAlong) {
  start_jobs(4);
  take(Duration{10 * kMillisecond.ns});
  std::vector<std::shared_ptr<Pending>> all;
  for (std::size_t job = 0; job < 4; ++job) all.push_back(sample(job, job == 2 ? kDeadly : 1));
  EXPECT_EQ(running(), 4U);
  for (const std::size_t job : {0U, 1U, 3U}) EXPECT_TRUE(wait(all[job]).status.ok()) << job;
  const OpOutcome deadly = wait(all[2]);
  EXPECT_EQ(deadly.status.code(), Code::INTERNAL) << deadly.status.to_string();
  EXPECT_NE(deadly.status.text().find("died 3 times"), std::string::npos) << deadly.status.text();
  // Later ops are together again.
  bring_in();
  const auto first = sample(0, 1);
  const auto second = sample(1, 1);
  EXPECT_EQ(running(), 2U);
  EXPECT_TRUE(wait(first).status.ok());
  EXPECT_TRUE(wait(second).status.ok());
}

// Nobody waits for what the engine runs; it is stopped before the next plexrld uses its models.
TEST_F(NodeBatch, ARestartOfPlexrldStopsWhatRan) {
  start_jobs(3);
  take(Duration{300 * kMillisecond.ns});
  for (std::size_t job = 0; job < 3; ++job) (void)sample(job, 1);
  ASSERT_EQ(running(), 3U);
  settle();
  restart();
  take({});
  std::vector<std::shared_ptr<Pending>> again;
  for (std::size_t job = 0; job < 3; ++job) again.push_back(sample(job, 1));
  for (const auto& each : again) EXPECT_TRUE(wait(each).status.ok());
}

TEST_F(NodeBatch, ARestartWhileOneTrainsAndOthersWaitKeepsTheState) {
  start_jobs(3);
  ASSERT_TRUE(run(jobs_[0].tenant, jobs_[0].model, 1, train(0)).status.ok());
  ASSERT_TRUE(run(jobs_[0].tenant, jobs_[0].model, 2, train(8)).status.ok());
  take(Duration{30 * kMillisecond.ns});
  (void)sample(1, 1);
  (void)sample(2, 1);
  (void)submit(jobs_[0].tenant, jobs_[0].model, 3, optim());
  ASSERT_TRUE(turn_until([&] { return node_->accounting().computes(jobs_[0].tenant); }));
  restart();
  take({});
  ASSERT_TRUE(run(jobs_[0].tenant, jobs_[0].model, 3, optim()).status.ok());
  EXPECT_EQ(weights_of(jobs_[0].tenant, jobs_[0].model, 4), undisturbed(1));
}

}  // namespace
}  // namespace plexrl::runtime
