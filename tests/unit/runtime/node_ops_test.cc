// SPDX-License-Identifier: Apache-2.0
// Ops through the whole runtime on fake engines.
#include "node_fixture.h"

namespace plexrl::runtime {
namespace {

class NodeOps : public NodeFixture {
 protected:
  NodeOps() { fake_options_.op_time = {}; }
};

TEST_F(NodeOps, GeneratesOnTheBase) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const OpOutcome first = run(job, id, 0, generate());
  ASSERT_TRUE(first.status.ok()) << first.status.to_string();
  const auto* value = first.reply.value.AsGenerateResult();
  ASSERT_NE(value, nullptr);
  ASSERT_EQ(value->sequences.size(), 1U);
  EXPECT_EQ(value->sequences[0]->tokens.size(), 4U);
  const OpOutcome again = run(job, id, 0, generate());
  EXPECT_EQ(again.reply.value.AsGenerateResult()->sequences[0]->tokens,
            value->sequences[0]->tokens);
}

TEST_F(NodeOps, TheSameNameGivesTheSameModelAndOtherSettingsAreRefused) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  EXPECT_EQ(model(job), id);
  EXPECT_EQ(create(job, "policy", wire::TrainMode::None).error().code(), Code::EXISTS);
  EXPECT_EQ(create(job, "full", wire::TrainMode::Full).error().code(), Code::PERMISSION);
}

TEST_F(NodeOps, ARetriedNumberReturnsTheFirstResultAndRunsOnce) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  ASSERT_TRUE(run(job, id, 1, train(3)).status.ok());
  const OpOutcome step = run(job, id, 2, optim());
  ASSERT_TRUE(step.status.ok()) << step.status.to_string();
  EXPECT_EQ(step.reply.value.AsOptimStepResult()->step, 1U);
  const auto before = fake().ops_started();
  const OpOutcome again = run(job, id, 2, optim());
  EXPECT_EQ(again.reply.value.AsOptimStepResult()->step, 1U);
  EXPECT_EQ(again.reply.op, step.reply.op);
  EXPECT_EQ(fake().ops_started(), before);
}

TEST_F(NodeOps, TwoWhoAskForOneNumberGetOneRun) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const auto first = submit(job, id, 1, train(3));
  const auto second = submit(job, id, 1, train(3));
  EXPECT_TRUE(wait(first).status.ok());
  EXPECT_TRUE(wait(second).status.ok());
  EXPECT_EQ(fake().ops_started(), 1U);
  EXPECT_EQ(first->answers, 1);
}

TEST_F(NodeOps, AGapWaits) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const auto second = submit(job, id, 2, optim());
  settle();
  EXPECT_FALSE(second->outcome.has_value());
  const auto first = submit(job, id, 1, train(3));
  EXPECT_TRUE(wait(second).status.ok());
  EXPECT_TRUE(wait(first).status.ok());
}

TEST_F(NodeOps, ARefusedTrainingOpUsesItsNumberUp) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  auto bad = train(99);
  EXPECT_EQ(run(job, id, 1, bad).status.code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(run(job, id, 1, train(3)).status.code(), Code::INVALID_ARGUMENT);
  EXPECT_TRUE(run(job, id, 2, train(3)).status.ok());
}

TEST_F(NodeOps, PublishingGivesAVersionThatSamplingNames) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  ASSERT_TRUE(run(job, id, 1, train(3)).status.ok());
  ASSERT_TRUE(run(job, id, 2, optim()).status.ok());
  const OpOutcome saved = run(job, id, 3, publish());
  ASSERT_TRUE(saved.status.ok()) << saved.status.to_string();
  const std::uint64_t version = saved.reply.value.AsSaveResult()->version;
  EXPECT_GT(version, 0U);
  EXPECT_TRUE(run(job, id, 0, generate(version)).status.ok());
  EXPECT_EQ(run(job, id, 0, generate(version + 1)).status.code(), Code::NOT_FOUND);
  const OpOutcome next = run(job, id, 4, publish());
  ASSERT_TRUE(next.status.ok());
  EXPECT_GT(next.reply.value.AsSaveResult()->version, version);
  EXPECT_EQ(run(job, id, 0, generate(version)).status.code(), Code::NOT_FOUND);
}

TEST_F(NodeOps, AFullQueueIsBusyWithATimeToRetry) {
  config_.daemon.max_queued_ops_per_tenant = 3;
  fake_options_.op_time = Duration{50 * kMillisecond.ns};
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  std::vector<std::shared_ptr<Pending>> accepted;
  for (int i = 0; i < 3; ++i) accepted.push_back(submit(job, id, 0, generate()));
  const OpOutcome refused = run(job, id, 0, generate());
  EXPECT_EQ(refused.status.code(), Code::BUSY);
  EXPECT_GT(refused.retry_after_ms, 0U);
  for (const auto& one : accepted) EXPECT_TRUE(wait(one).status.ok());
  EXPECT_TRUE(run(job, id, 0, generate()).status.ok());
}

TEST_F(NodeOps, AnotherTenantsModelIsNotFound) {
  start();
  const TenantId mine = open_job(1, 1000);
  const TenantId other = open_job(2, 1001);
  const std::uint64_t id = model(mine);
  EXPECT_EQ(run(other, id, 0, generate()).status.code(), Code::NOT_FOUND);
  EXPECT_EQ(node_->model_service().remove(other, ModelId{id}).code(), Code::NOT_FOUND);
  EXPECT_NE(model(other), id);
}

TEST_F(NodeOps, AnOpThatNeverFitsIsRefusedWithTheNumbers) {
  config_.pools[0].device_memory_mib = 1;
  fake_options_.segment_bytes = 4096;
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  auto args = generate();
  args.AsGenerateArgs()->samples_per_prompt = 4096;
  const OpOutcome refused = run(job, id, 0, args);
  if (node_->models().find(ModelId{id})->shape.kv_bytes_per_position == 0)
    GTEST_SKIP() << "the fake engine needs no KV";
  EXPECT_EQ(refused.status.code(), Code::NO_CAPACITY) << refused.status.to_string();
}

TEST_F(NodeOps, TwoFullModelsTakeTurnsOnADeviceThatHoldsOne) {
  start_with_room_for_one();
  const TenantId a = open_job(1, 1000, "full", 4);
  const TenantId b = open_job(2, 1001, "full", 4);
  const std::uint64_t ma = model(a, "p", wire::TrainMode::Full);
  const std::uint64_t mb = model(b, "p", wire::TrainMode::Full);
  std::vector<float> last_a;
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (const auto& [job, id] : {std::pair{a, ma}, std::pair{b, mb}}) {
      ASSERT_TRUE(run(job, id, 2 * step + 1, train(3)).status.ok());
      const OpOutcome done = run(job, id, 2 * step + 2, optim());
      ASSERT_TRUE(done.status.ok()) << done.status.to_string();
      EXPECT_EQ(done.reply.value.AsOptimStepResult()->step, step + 1);
    }
  }
  // The same work from the same seed: sharing changed nothing.
  EXPECT_EQ(weights_of(a, ma, 7), weights_of(b, mb, 7));
  EXPECT_GT(node_->accounting().totals(a).device_ns, 0);
}

TEST_F(NodeOps, AQueuedTrainingOpCanBeCancelledARunningOneCannot) {
  fake_options_.op_time = Duration{30 * kMillisecond.ns};
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const auto first = submit(job, id, 1, train(3), 901);
  const auto second = submit(job, id, 2, train(4), 902);
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() == 1; }));
  node_->op_service().cancel(session_, 902);
  node_->op_service().cancel(session_, 901);
  EXPECT_EQ(wait(second).status.code(), Code::CANCELLED);
  EXPECT_TRUE(wait(first).status.ok());
  EXPECT_TRUE(run(job, id, 3, optim()).status.ok());
}

TEST_F(NodeOps, SamplingEndsWithItsConnectionTrainingGoesOn) {
  fake_options_.op_time = Duration{30 * kMillisecond.ns};
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const auto training = submit(job, id, 1, train(3));
  const auto sampling = submit(job, id, 0, generate());
  node_->op_service().session_closed(session_);
  EXPECT_TRUE(turn_until([&] { return node_->ops().all().empty(); }));
  EXPECT_EQ(sampling->answers, 0);
  EXPECT_EQ(training->answers, 0);
  EXPECT_TRUE(run(job, id, 1, train(3)).status.ok());
  EXPECT_EQ(fake().ops_started(), 1U);
}

TEST_F(NodeOps, CommitsAfterEveryStepAndPrunesTheLog) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  ASSERT_TRUE(run(job, id, 1, train(3)).status.ok());
  ASSERT_TRUE(store_->get("ops", id, 1));
  ASSERT_TRUE(run(job, id, 2, optim()).status.ok());
  EXPECT_TRUE(
      turn_until([&] { return node_->state().manifest(ModelId{id})->position.applied_seq == 2; }));
  EXPECT_EQ(store_->get("ops", id, 1).error().code(), Code::NOT_FOUND);
  EXPECT_EQ(node_->accounting().totals(job).commits, 1U);
}

TEST_F(NodeOps, ARemovedModelLeavesNothing) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  ASSERT_TRUE(run(job, id, 1, train(3)).status.ok());
  ASSERT_TRUE(node_->model_service().remove(job, ModelId{id}).ok());
  ASSERT_TRUE(turn_until([&] { return node_->models().find(ModelId{id}) == nullptr; }));
  EXPECT_EQ(run(job, id, 2, optim()).status.code(), Code::NOT_FOUND);
  EXPECT_EQ(store_->get("results", id, 1).error().code(), Code::NOT_FOUND);
  EXPECT_GT(model(job), id);
}

TEST_F(NodeOps, ForwardBackwardsWithoutAStepAreRefusedForGoodAndTheStepGoesOn) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  std::uint64_t seq = 0;
  while (seq < OpLog::kMaxLoggedOps) ASSERT_TRUE(run(job, id, ++seq, train(1)).status.ok());
  const OpOutcome early = run(job, id, seq + 3, train(1));
  EXPECT_EQ(early.status.code(), Code::BUSY) << "behind the step there will be room";
  const OpOutcome refused = run(job, id, ++seq, train(1));
  EXPECT_EQ(refused.status.code(), Code::NO_CAPACITY) << refused.status.to_string();
  EXPECT_EQ(run(job, id, seq, train(1)).status, refused.status) << "the number is used up";
  EXPECT_TRUE(run(job, id, ++seq, optim()).status.ok());
  settle();
  EXPECT_TRUE(run(job, id, ++seq, train(1)).status.ok());
}

}  // namespace
}  // namespace plexrl::runtime
