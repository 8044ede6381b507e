// SPDX-License-Identifier: Apache-2.0
// Jobs come, are requeued, end, and are forgotten.
#include "node_fixture.h"

namespace plexrl::runtime {
namespace {

class NodeJobs : public NodeFixture {
 protected:
  Status try_open(std::uint32_t job, std::uint32_t uid, std::uint64_t mib,
                  const std::string& text = "") {
    wire::OpenJobT open;
    open.job_id = job;
    open.uid = uid;
    open.grant = text.empty() ? grant_text("lora", mib) : text;
    std::optional<Status> done;
    node_->tenant_service().open(open, [&](const Status& status) { done = status; });
    EXPECT_TRUE(turn_until([&] { return done.has_value(); }));
    return *done;
  }
};

TEST_F(NodeJobs, ARequeuedJobFindsItsModelAndItsNumbers) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  ASSERT_TRUE(run(job, id, 1, train(3)).status.ok());
  ASSERT_TRUE(run(job, id, 2, optim()).status.ok());
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  EXPECT_EQ(node_->tenants().authenticate("token1", 1000).error().code(), Code::AUTH);
  EXPECT_EQ(open_job(1), job);
  EXPECT_TRUE(node_->tenants().authenticate("token2", 1000));
  const auto info = create(job);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->model, id);
  EXPECT_EQ(info->next_seq, 3U);
  EXPECT_EQ(info->step, 1U);
}

TEST_F(NodeJobs, ClosingDropsWhatIsQueued) {
  fake_options_.op_time = Duration{20 * kMillisecond.ns};
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const auto running = submit(job, id, 1, train(3));
  const auto queued = submit(job, id, 2, train(3));
  const auto gap = submit(job, id, 9, train(3));
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() == 1; }));
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  EXPECT_EQ(wait(queued).status.code(), Code::CANCELLED);
  EXPECT_EQ(wait(gap).status.code(), Code::CANCELLED);
  EXPECT_TRUE(wait(running).status.ok());
  EXPECT_TRUE(node_->tenant_service().close(1).ok());
}

TEST_F(NodeJobs, MemoryOfEndedJobsIsReclaimedOldestFirst) {
  start();  // 4 MiB of host memory
  const TenantId first = open_job(1, 1000, "lora", 2);
  const std::uint64_t id = model(first);
  ASSERT_TRUE(run(first, id, 1, train(3)).status.ok());
  (void)open_job(2, 1001, "lora", 2);
  EXPECT_EQ(try_open(3, 1002, 2).code(), Code::NO_CAPACITY);
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  EXPECT_TRUE(try_open(3, 1002, 2).ok());
  EXPECT_EQ(node_->tenants().find_job(1), nullptr);
  EXPECT_EQ(node_->models().find(ModelId{id}), nullptr);
}

// A cluster that was set up anew counts its jobs from 1.
TEST_F(NodeJobs, AnotherUsersJobOfTheSameNumberInheritsNothing) {
  start();
  for (const bool closed : {true, false}) {
    const std::uint32_t job = closed ? 1 : 2;
    const std::uint64_t id = model(open_job(job, 1000));
    if (closed) {
      ASSERT_TRUE(node_->tenant_service().close(job).ok());
    }
    const TenantId other = open_job(job, 1001);
    EXPECT_EQ(node_->tenants().find(other)->uid, 1001U);
    EXPECT_EQ(node_->models().find(ModelId{id}), nullptr);
    EXPECT_TRUE(node_->models().of_tenant(other).empty());
    EXPECT_EQ(node_->tenants().attach(job, 1000, TimePoint{1}).error().code(), Code::PERMISSION);
    ASSERT_TRUE(node_->tenant_service().close(job).ok());
  }
}

TEST_F(NodeJobs, BadGrantsAreRefusedWithTheReason) {
  start();
  EXPECT_EQ(try_open(1, 1000, 1, "v1:pool=rl;rm -rf").code(), Code::INVALID_ARGUMENT);
  std::string other = grant_text("lora", 1);
  other.replace(other.find("pool=rl"), 7, "pool=xx");
  EXPECT_EQ(try_open(1, 1000, 1, other).code(), Code::NOT_FOUND);
  EXPECT_EQ(try_open(1, 1000, 5000).code(), Code::NO_CAPACITY);
  EXPECT_EQ(node_->tenants().find_job(1), nullptr);
}

TEST_F(NodeJobs, ARunningJobIsNotEvictedAndAnEndedOneIs) {
  start();
  (void)open_job(1);
  EXPECT_EQ(node_->tenant_service().evict(1).code(), Code::INVALID_ARGUMENT);
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  EXPECT_TRUE(node_->tenant_service().evict(1).ok());
  EXPECT_EQ(node_->tenants().find_job(1), nullptr);
  EXPECT_EQ(node_->tenant_service().evict(1).code(), Code::NOT_FOUND);
}

TEST_F(NodeJobs, AnotherBootClosesEveryJob) {
  start();
  (void)open_job(1);
  (void)open_job(2);
  ASSERT_TRUE(node_->tenant_service().close(2).ok());
  // A time of a clock that ran for longer than the one of this boot.
  ASSERT_TRUE(
      node_->tenants()
          .close(node_->tenants().find_job(2)->id, TenantState::kClosed, TimePoint{INT64_MAX / 2})
          .ok());
  lose_engines();
  boot_ = "boot-2";
  start();
  EXPECT_FALSE(node_->tenants().find_job(1)->open());
  EXPECT_LE(node_->tenants().find_job(2)->closed, system_clock().now());
}

TEST_F(NodeJobs, AnEndedJobsStateIsKeptForTheConfiguredTime) {
  config_.daemon.retention_s = 3600;
  start();
  (void)open_job(1);
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  node_->tick();
  EXPECT_NE(node_->tenants().find_job(1), nullptr);
  config_.daemon.retention_s = 0;
  ASSERT_TRUE(node_->reload(config_).ok());
  node_->tick();
  EXPECT_EQ(node_->tenants().find_job(1), nullptr);
}

TEST_F(NodeJobs, TasksAndAccountsSurviveARestart) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  ASSERT_TRUE(run(job, id, 1, train(3)).status.ok());
  wire::AttachTaskT attach;
  attach.job_id = 1;
  attach.uid = 1000;
  attach.pid = ::getpid();
  ASSERT_TRUE(node_->tenant_service().attach(attach));
  const std::int64_t busy = node_->accounting().totals(job).device_ns;
  EXPECT_GT(busy, 0);
  stop_plexrld();
  start();
  EXPECT_EQ(node_->tasks().live(job), 1U);
  EXPECT_EQ(node_->accounting().totals(job).device_ns, busy);
  EXPECT_EQ(node_->accounting().totals(job).kinds[1].count +
                node_->accounting().totals(job).kinds[2].count +
                node_->accounting().totals(job).kinds[3].count,
            1U);
}

TEST_F(NodeJobs, ReloadTakesLimitsAndRefusesMemorySizes) {
  start();
  config::SiteConfig changed = config_;
  changed.pools[0].host_memory_mib = 8;
  changed.pools[0].policy = "fifo";
  changed.daemon.admin_groups = {"wheel"};
  const Status refused = node_->reload(changed);
  EXPECT_EQ(refused.code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(refused.text(), "host_memory_mib, policy cannot change while plexrld runs; restart it");
  changed = config_;
  changed.daemon.admin_groups = {"wheel"};
  EXPECT_TRUE(node_->reload(changed).ok());
  EXPECT_EQ(node_->config().daemon.admin_groups.size(), 1U);
}

TEST_F(NodeJobs, ANodeThatIsInNoPoolSaysSo) {
  store::WriteQueue writes(*store_, [](const std::function<void()>&) {});
  NodeSeams seams{system_clock(), writes, {}, {}, {}, {}, {}};
  const auto node =
      NodeRuntime::create(config_, {"elsewhere", dir_, dir_, boot_}, std::move(seams));
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().code(), Code::NOT_FOUND);
}

TEST_F(NodeJobs, AnotherGrantVoidsTheTokenBeforeTheOldStateIsGone) {
  start();
  const TenantId job = open_job(1);
  ASSERT_TRUE(run(job, model(job), 0, generate()).status.ok());
  wire::OpenJobT open;
  open.job_id = 1;
  open.uid = 1000;
  open.grant = grant_text("lora", 2);
  std::optional<Status> done;
  node_->tenant_service().open(open, [&](const Status& status) { done = status; });
  ASSERT_FALSE(done.has_value());  // the engine has to forget the model first
  EXPECT_FALSE(node_->tenants().authenticate("token1", 1000));
  ASSERT_TRUE(turn_until([&] { return done.has_value(); }));
  EXPECT_TRUE(done->ok()) << done->to_string();
  EXPECT_TRUE(node_->tenants().authenticate("token2", 1000));
}

}  // namespace
}  // namespace plexrl::runtime
