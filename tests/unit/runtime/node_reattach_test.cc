// SPDX-License-Identifier: Apache-2.0
// plexrld goes while an engine is in the middle of an op, and the next one takes the engine over.
#include "node_fixture.h"

namespace plexrl::runtime {
namespace {

class NodeReattach : public NodeFixture {
 protected:
  // The engine runs the op, which takes `time`, and the log has it on disk.
  void run_for(Duration time, TenantId job, std::uint64_t id, std::uint64_t seq,
               wire::OpArgsUnion args) {
    engine::FakeEngine& engine = fake(node_->models().find(ModelId{id})->engine.value);
    engine.options().op_time = time;
    const auto started = engine.ops_started();
    (void)submit(job, id, seq, std::move(args));
    ASSERT_TRUE(turn_until([&] { return engine.ops_started() > started && writes_->idle(); }));
    engine.options().op_time = {};
  }
  void begin() {
    start();
    job_ = open_job(1);
    id_ = model(job_);
    train_steps(job_, id_, 2);
  }
  // Training goes on behind number 7 as if nothing had happened.
  void ends_as_undisturbed() {
    ASSERT_TRUE(run(job_, id_, 8, train(8)).status.ok());
    ASSERT_TRUE(run(job_, id_, 9, optim()).status.ok());
    EXPECT_EQ(weights_of(job_, id_, 10), undisturbed(3));
  }

  TenantId job_;
  std::uint64_t id_ = 0;
};

constexpr Duration kShort{40 * kMillisecond.ns};
constexpr Duration kLong{300 * kMillisecond.ns};

TEST_F(NodeReattach, AnOpThatRunsOverARestartIsTakenOver) {
  begin();
  run_for(kShort, job_, id_, 7, train(2));
  restart();
  ASSERT_TRUE(run(job_, id_, 7, train(2)).status.ok());
  EXPECT_EQ(node_->accounting().totals(job_).replayed_ops, 0U);
  ends_as_undisturbed();
}

TEST_F(NodeReattach, ATrainingOpThatRunsOverARestartCannotBeCancelled) {
  begin();
  ASSERT_TRUE(run(job_, id_, 7, train(2)).status.ok());
  ASSERT_TRUE(run(job_, id_, 8, train(8)).status.ok());
  run_for(kLong, job_, id_, 9, optim());
  restart();
  const auto again = submit(job_, id_, 9, optim(), 77);
  node_->op_service().cancel(session_, 77);
  EXPECT_TRUE(wait(again).status.ok()) << "its effect is in the state";
  EXPECT_EQ(weights_of(job_, id_, 10), undisturbed(3));
}

TEST_F(NodeReattach, AJobThatEndsRightAfterARestartKeepsTheOpThatTheEngineRuns) {
  begin();
  ASSERT_TRUE(run(job_, id_, 7, train(2)).status.ok());
  ASSERT_TRUE(run(job_, id_, 8, train(8)).status.ok());
  run_for(kLong, job_, id_, 9, optim());
  restart();
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  ASSERT_EQ(open_job(1), job_);
  EXPECT_TRUE(run(job_, id_, 9, optim()).status.ok()) << "its effect is in the state";
  EXPECT_EQ(weights_of(job_, id_, 10), undisturbed(3));
}

// It has yielded and waits behind another job's op; the engine keeps what it has added.
TEST_F(NodeReattach, AForwardBackwardThatYieldedOverARestartIsNotCancelled) {
  begin();
  const TenantId other = open_job(2, 1001);
  const std::uint64_t beside = model(other);
  ASSERT_TRUE(run(other, beside, 1, train(1)).status.ok());
  run_for(kLong, job_, id_, 7, train(2));
  // Right behind the yield, before anything of it is scheduled again.
  restart();
  fake().options().op_time = kLong;
  const auto first = submit(other, beside, 0, generate());
  const auto again = submit(job_, id_, 7, train(2), 77);
  ASSERT_TRUE(turn_until([&] { return first->outcome || node_->ops().running(other) == 1; }));
  node_->op_service().cancel(session_, 77);
  fake().options().op_time = {};
  EXPECT_TRUE(wait(first).status.ok());
  EXPECT_TRUE(wait(again).status.ok()) << "a part of its gradients is there";
  ends_as_undisturbed();
}

TEST_F(NodeReattach, AnOpThatEndedWhilePlexrldWasAwayIsNotRunAgain) {
  begin();
  const auto started = fake().ops_started();
  run_for(kShort, job_, id_, 7, train(2));
  kill_plexrld();
  settle();
  start();
  ASSERT_TRUE(run(job_, id_, 7, train(2)).status.ok());
  EXPECT_EQ(fake().ops_started(), started + 1);
  ends_as_undisturbed();
}

// A plexrld that has just started knows of committed versions only.
TEST_F(NodeReattach, ASampleOfAVersionThatIsGoneIsToldOfTheLoss) {
  begin();
  ASSERT_TRUE(run(job_, id_, 7, publish()).status.ok());
  ASSERT_TRUE(run(job_, id_, 0, generate(7)).status.ok());
  settle();
  lose_engines();
  start();
  const OpOutcome outcome = run(job_, id_, 0, generate(7));
  EXPECT_EQ(outcome.status.code(), Code::LOST) << outcome.status.to_string();
  EXPECT_EQ(run(job_, id_, 0, generate(7)).status.code(), Code::NOT_FOUND) << "it was told";
}

TEST_F(NodeReattach, ASampleOfAVersionThatTheEngineHoldsWaitsForIt) {
  begin();
  ASSERT_TRUE(run(job_, id_, 7, publish()).status.ok());
  const OpOutcome before = run(job_, id_, 0, generate(7));
  ASSERT_TRUE(before.status.ok());
  restart();
  const OpOutcome after = run(job_, id_, 0, generate(7));
  ASSERT_TRUE(after.status.ok()) << after.status.to_string();
  EXPECT_EQ(after.reply.value.AsGenerateResult()->sequences[0]->tokens,
            before.reply.value.AsGenerateResult()->sequences[0]->tokens);
}

TEST_F(NodeReattach, NothingStartsBesideAnOpOfAnEarlierPlexrld) {
  start_with_room_for_one();
  const TenantId a = open_job(1, 1000, "full", 4);
  const TenantId b = open_job(2, 1001, "full", 4);
  const std::uint64_t ma = model(a, "p", wire::TrainMode::Full);
  const std::uint64_t mb = model(b, "p", wire::TrainMode::Full);
  ASSERT_TRUE(run(a, ma, 1, train(1)).status.ok());
  settle();
  run_for(kShort, a, ma, 2, optim());
  restart();
  // The device holds one of the two models.
  const auto other = submit(b, mb, 1, train(1));
  const auto mine = submit(a, ma, 2, optim());
  const OpOutcome outcome = wait(other);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_TRUE(mine->outcome.has_value()) << "it was running before the other one could start";
  EXPECT_TRUE(wait(mine).status.ok());
  EXPECT_TRUE(run(a, ma, 3, train(1)).status.ok());
}

}  // namespace
}  // namespace plexrl::runtime
