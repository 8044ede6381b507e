// SPDX-License-Identifier: Apache-2.0
// Ops: results, yields, drops, KV memory, and what a restarted plexrld finds.
#include <gtest/gtest.h>

#include "engine_torch/server_harness.h"

namespace plexrl::worker {
namespace {

using Harness = ServerHarness;
using wire::SegmentKind;

class ServerOps : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.attach();
    ASSERT_NE(engine_.ask(Harness::resume(1, 0)).AsEngineMoved(), nullptr);
  }
  // Starts the op, lets it take at least one step and makes it yield.
  void run_until_yield(wire::EngineRunOpT request) {
    const std::uint64_t op = request.op;
    engine_.code().hold = true;
    const auto running = engine_.send(std::move(request));
    yield(op);
    engine_.code().hold = false;
    const auto reply = engine_.wait(running);
    ASSERT_NE(reply.AsEngineYielded(), nullptr)
        << (reply.AsFailure() != nullptr ? reply.AsFailure()->text : "no failure");
    EXPECT_EQ(reply.AsEngineYielded()->op, op);
  }
  void yield(std::uint64_t op) {
    wire::EngineYieldT ask;
    ask.op = op;
    ASSERT_NE(engine_.ask(ask).AsEngineDone(), nullptr);
  }
  wire::EngineBodyUnion drop(std::uint64_t op) {
    wire::EngineDropOpT ask;
    ask.op = op;
    return engine_.ask(ask);
  }
  static wire::EngineSuspendT park(bool with_kv) {
    wire::EngineSuspendT out;
    out.model = 1;
    out.segments = Harness::places(0, 10, {SegmentKind::Weights, SegmentKind::Gradients});
    if (with_kv) out.segments.push_back(kv_place(40, 60));
    return out;
  }
  static wire::EngineResumeT unpark(std::uint32_t kv_device) {
    wire::EngineResumeT out = Harness::resume(1, 20);
    out.segments = Harness::places(20, 10, {SegmentKind::Weights, SegmentKind::Gradients});
    if (kv_device != 0) out.segments.push_back(kv_place(kv_device, 60));
    return out;
  }
  static std::unique_ptr<wire::SegmentPlaceT> kv_place(std::uint32_t device, std::uint32_t host) {
    auto place = std::make_unique<wire::SegmentPlaceT>();
    place->kind = SegmentKind::Kv;
    place->bytes = Harness::kChunk;
    place->device = {device};
    place->host = {host};
    return place;
  }
  static std::vector<std::int32_t> tokens(const wire::EngineBodyUnion& reply) {
    const auto* const done = reply.AsEngineOpDone();
    if (done == nullptr || done->value.AsGenerateResult() == nullptr) return {};
    return done->value.AsGenerateResult()->sequences[0]->tokens;
  }
  static double loss(const wire::EngineBodyUnion& reply) {
    const auto* const done = reply.AsEngineOpDone();
    return done == nullptr ? -1 : done->value.AsForwardBackwardResult()->loss_sum;
  }

  Harness engine_;
  const std::vector<std::int32_t> expected_ = {1000, 1001, 1002, 1003};
};

TEST_F(ServerOps, AnOpReportsItsResultAndTime) {
  const auto reply = engine_.ask(Harness::op(1, 1, Harness::forward_backward({2, 3}), 1));
  ASSERT_NE(reply.AsEngineOpDone(), nullptr);
  EXPECT_EQ(reply.AsEngineOpDone()->op, 1U);
  EXPECT_EQ(reply.AsEngineOpDone()->tokens, 2U);
  EXPECT_GT(reply.AsEngineOpDone()->run_ns, 0U);
  EXPECT_EQ(loss(reply), 5);
}

TEST_F(ServerOps, OpsThatCannotRunAreRefusedWithAReason) {
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(0, 1, Harness::optim(1)))),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(1, 2, Harness::optim(1)))),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(1, 0, Harness::optim(1)))),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(2, 1, {}))), Code::UNSUPPORTED);
}

TEST_F(ServerOps, OneOpRunsAtATime) {
  engine_.code().hold = true;
  const auto first = engine_.send(Harness::op(1, 1, Harness::forward_backward({2}), 1));
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(2, 1, Harness::optim(1), 2))), Code::BUSY);
  engine_.code().hold = false;
  EXPECT_EQ(loss(engine_.wait(first)), 2);
}

TEST_F(ServerOps, AFailedOpIsAFailureAndTheNextOneRuns) {
  engine_.code().fail_step = true;
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(1, 1, Harness::forward_backward({2}), 1))),
            Code::NO_CAPACITY);
  EXPECT_EQ(loss(engine_.ask(Harness::op(2, 1, Harness::forward_backward({2}), 1))), 2);
}

TEST_F(ServerOps, AYieldedOpGoesOnWhereItStopped) {
  run_until_yield(Harness::op(1, 1, Harness::forward_backward({2, 3, 4}), 1));
  const int before = engine_.code().steps;
  EXPECT_LT(before, 3);
  EXPECT_EQ(loss(engine_.ask(Harness::op(1, 1, Harness::forward_backward({2, 3, 4}), 1))), 9);
  EXPECT_EQ(engine_.code().steps, 3);
}

TEST_F(ServerOps, AYieldForAnOpThatDoesNotRunIsHarmless) {
  yield(77);
  EXPECT_EQ(loss(engine_.ask(Harness::op(1, 1, Harness::forward_backward({2, 3}), 1))), 5);
}

TEST_F(ServerOps, AnotherModelMayNotContinueAnOp) {
  run_until_yield(Harness::op(1, 1, Harness::forward_backward({2, 3, 4}), 1));
  ASSERT_NE(engine_.ask(Harness::resume(2, 20)).AsEngineMoved(), nullptr);
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(1, 2, Harness::forward_backward({2}), 1))),
            Code::INVALID_ARGUMENT);
}

TEST_F(ServerOps, AYieldedAccumulationSurvivesSuspend) {
  run_until_yield(Harness::op(1, 1, Harness::forward_backward({2, 3, 4}), 1));
  ASSERT_NE(engine_.ask(park(false)).AsEngineMoved(), nullptr);
  ASSERT_NE(engine_.ask(unpark(0)).AsEngineMoved(), nullptr);
  EXPECT_EQ(loss(engine_.ask(Harness::op(1, 1, {}, 1))), 9);
}

TEST_F(ServerOps, GenerateUsesItsKvMemoryAndGivesItBack) {
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(1, 1, 40, 4))), expected_);
  // The same chunk again: it was unmapped, and it is zero although the last op wrote to it.
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(2, 1, 40, 4))), expected_);
}

TEST_F(ServerOps, WrongKvIsRefused) {
  auto none = Harness::generate(1, 1, 40, 4);
  none.kv.reset();
  EXPECT_EQ(failure_code(engine_.ask(std::move(none))), Code::INVALID_ARGUMENT);
  auto too_many = Harness::generate(2, 1, 40, 4);
  too_many.kv->device = {40, 41};
  EXPECT_EQ(failure_code(engine_.ask(std::move(too_many))), Code::INVALID_ARGUMENT);
  auto of_the_model = Harness::generate(3, 1, 0, 4);  // chunk 0 holds weights
  EXPECT_EQ(failure_code(engine_.ask(std::move(of_the_model))), Code::INVALID_ARGUMENT);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(4, 1, 40, 4))), expected_);
}

TEST_F(ServerOps, ParkedKvIsRestored) {
  run_until_yield(Harness::generate(1, 1, 40, 4));
  EXPECT_EQ(failure_code(engine_.ask(park(false))), Code::INVALID_ARGUMENT);  // would lose the KV
  ASSERT_NE(engine_.ask(park(true)).AsEngineMoved(), nullptr);
  ASSERT_NE(engine_.ask(unpark(50)).AsEngineMoved(), nullptr);
  const int before = engine_.code().steps;
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(1, 1, 50, 4))), expected_);
  EXPECT_EQ(engine_.code().steps - before, 4 - before);  // nothing was computed twice
}

TEST_F(ServerOps, KvOfAYieldedOpIsNotGivenAway) {
  run_until_yield(Harness::generate(1, 1, 40, 4));
  EXPECT_EQ(failure_code(engine_.ask(Harness::generate(2, 1, 41, 4))), Code::BUSY);
  // Ops without KV may run in between.
  EXPECT_EQ(loss(engine_.ask(Harness::op(3, 1, Harness::forward_backward({2}), 1))), 2);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(1, 1, 40, 4))), expected_);
}

TEST_F(ServerOps, ADroppedRunningOpIsUndone) {
  engine_.code().hold = true;
  const auto running = engine_.send(Harness::op(1, 1, Harness::forward_backward({2, 3, 4}), 1));
  wire::EngineDropOpT ask;
  ask.op = 1;
  const auto dropping = engine_.send(ask);
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  engine_.code().hold = false;
  EXPECT_EQ(failure_code(engine_.wait(running)), Code::CANCELLED);
  EXPECT_NE(engine_.wait(dropping).AsEngineDone(), nullptr);
  EXPECT_EQ(engine_.code().abandoned, 1);
  EXPECT_EQ(loss(engine_.ask(Harness::op(2, 1, Harness::forward_backward({1}), 1))), 1);
}

TEST_F(ServerOps, ADroppedYieldedOpIsUndone) {
  run_until_yield(Harness::op(1, 1, Harness::forward_backward({2, 3, 4}), 1));
  EXPECT_NE(drop(1).AsEngineDone(), nullptr);
  EXPECT_EQ(engine_.code().abandoned, 1);
  EXPECT_EQ(loss(engine_.ask(Harness::op(2, 1, Harness::forward_backward({1}), 1))), 1);
}

TEST_F(ServerOps, AnOpDroppedWhileItsModelIsParkedIsUndoneWhenItReturns) {
  run_until_yield(Harness::op(1, 1, Harness::forward_backward({2, 3, 4}), 1));
  ASSERT_NE(engine_.ask(park(false)).AsEngineMoved(), nullptr);
  EXPECT_NE(drop(1).AsEngineDone(), nullptr);
  EXPECT_EQ(engine_.code().abandoned, 0);
  ASSERT_NE(engine_.ask(unpark(0)).AsEngineMoved(), nullptr);
  EXPECT_EQ(engine_.code().abandoned, 1);
  EXPECT_EQ(loss(engine_.ask(Harness::op(2, 1, Harness::forward_backward({1}), 1))), 1);
}

// What it would put back is of a state that is gone.
TEST_F(ServerOps, AnOpDroppedWhileItsModelIsParkedIsNotUndoneInFreshGradients) {
  EXPECT_EQ(loss(engine_.ask(Harness::op(1, 1, Harness::forward_backward({2}), 1))), 2);
  run_until_yield(Harness::op(2, 1, Harness::forward_backward({2, 3, 4}), 2));
  ASSERT_NE(engine_.ask(park(false)).AsEngineMoved(), nullptr);
  EXPECT_NE(drop(2).AsEngineDone(), nullptr);
  ASSERT_NE(engine_.ask(Harness::resume(1, 20)).AsEngineMoved(), nullptr);
  EXPECT_EQ(engine_.code().abandoned, 0);
  EXPECT_EQ(loss(engine_.ask(Harness::op(3, 1, Harness::forward_backward({1}), 1))), 1);
}

// The drop stands behind the move of another model when the op is run again under its number.
TEST_F(ServerOps, AnOpThatIsRunAgainWaitsForItsDropAndKeepsItsKv) {
  run_until_yield(Harness::generate(1, 1, 40, 4));
  engine_.code().hold_base = true;
  const auto move = engine_.send(Harness::resume(2, 20));
  wire::EngineDropOpT ask;
  ask.op = 1;
  const auto dropping = engine_.send(ask);
  const auto again = engine_.send(Harness::generate(1, 1, 41, 4));
  yield(1);
  EXPECT_EQ(failure_code(engine_.ask(Harness::generate(3, 1, 42, 4))), Code::BUSY);
  engine_.code().hold = true;
  engine_.code().hold_base = false;
  EXPECT_NE(engine_.wait(move).AsEngineMoved(), nullptr);
  EXPECT_NE(engine_.wait(dropping).AsEngineDone(), nullptr);
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  engine_.code().hold = false;
  ASSERT_NE(engine_.wait(again).AsEngineYielded(), nullptr);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(1, 1, 41, 4))), expected_);
}

TEST_F(ServerOps, AnOpThatIsRunAgainAtOnceFindsItsModelResident) {
  for (int i = 0; i < 20; ++i) {
    run_until_yield(Harness::generate(1, 1, 40, 4));
    wire::EngineDropOpT ask;
    ask.op = 1;
    const auto dropping = engine_.send(ask);
    EXPECT_EQ(tokens(engine_.ask(Harness::generate(1, 1, 41, 4))), expected_);
    EXPECT_NE(engine_.wait(dropping).AsEngineDone(), nullptr);
    EXPECT_NE(drop(1).AsEngineDone(), nullptr);  // its result is not asked for again
  }
}

TEST_F(ServerOps, AnOpThatWaitsForADropCanBeDropped) {
  run_until_yield(Harness::generate(1, 1, 40, 4));
  engine_.code().hold_base = true;
  const auto move = engine_.send(Harness::resume(2, 20));
  wire::EngineDropOpT ask;
  ask.op = 1;
  const auto first = engine_.send(ask);
  const auto again = engine_.send(Harness::generate(1, 1, 41, 4));
  const auto second = engine_.send(ask);
  EXPECT_EQ(failure_code(engine_.wait(again)), Code::CANCELLED);
  engine_.code().hold_base = false;
  EXPECT_NE(engine_.wait(move).AsEngineMoved(), nullptr);
  EXPECT_NE(engine_.wait(first).AsEngineDone(), nullptr);
  EXPECT_NE(engine_.wait(second).AsEngineDone(), nullptr);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(1, 1, 41, 4))), expected_);
}

TEST_F(ServerOps, AnOpThatWaitsForADropIsForgottenWithItsConnection) {
  run_until_yield(Harness::generate(1, 1, 40, 4));
  engine_.code().hold_base = true;
  (void)engine_.send(Harness::resume(2, 20));
  wire::EngineDropOpT ask;
  ask.op = 1;
  (void)engine_.send(ask);
  (void)engine_.send(Harness::generate(1, 1, 41, 4));
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  engine_.disconnect();
  engine_.code().hold_base = false;
  engine_.connect();
  EXPECT_EQ(engine_.hello().running_op, 0U);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(1, 1, 41, 4))), expected_);
}

TEST_F(ServerOps, DropZeroFreesTheSamplingOpsThatYielded) {
  run_until_yield(Harness::generate(1, 1, 40, 4));
  run_until_yield(Harness::op(2, 1, Harness::forward_backward({2, 3, 4}), 1));
  EXPECT_NE(drop(0).AsEngineDone(), nullptr);
  EXPECT_EQ(engine_.code().abandoned, 1);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(3, 1, 40, 4))), expected_);
  // A training op is in plexrld's log: it goes on.
  EXPECT_EQ(loss(engine_.ask(Harness::op(2, 1, {}, 1))), 9);
  EXPECT_NE(drop(0).AsEngineDone(), nullptr);  // nothing left is fine
}

// plexrld counts the KV of a dropped op and the chunks of a forgotten model as free.
TEST_F(ServerOps, DropAndForgetAreDoneHoweverManyCommandsWait) {
  ASSERT_NE(engine_.ask(Harness::resume(2, 20)).AsEngineMoved(), nullptr);
  ASSERT_NE(engine_.ask(Harness::resume(3, 45)).AsEngineMoved(), nullptr);
  run_until_yield(Harness::generate(5, 2, 40, 4));
  engine_.code().hold = true;  // of an op that a commit waits for, and all others behind it
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  const auto running = engine_.send(Harness::op(10, 1, Harness::publish(), 1));
  wire::EngineCommitT commit;
  commit.model = commit.epoch = 1;
  commit.segments = Harness::places(0, 10, {SegmentKind::Weights});
  commit.segments.resize(1);
  const auto first = engine_.send(std::move(commit));
  std::vector<std::uint64_t> many;
  for (int i = 0; i < 1100; ++i) {
    wire::EngineSuspendT suspend;
    suspend.model = 99;
    many.push_back(engine_.send(std::move(suspend)));
  }
  EXPECT_EQ(failure_code(engine_.wait(many.back())), Code::BUSY);
  wire::EngineDropOpT dropped;
  dropped.op = 5;
  const auto drop = engine_.send(dropped);
  wire::EngineForgetT forgotten;
  forgotten.model = 3;
  const auto forget = engine_.send(forgotten);
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  engine_.code().hold = false;
  EXPECT_NE(engine_.wait(running).AsEngineOpDone(), nullptr);
  static_cast<void>(engine_.wait(first));
  EXPECT_EQ(failure_code(engine_.wait(many.front())), Code::INVALID_ARGUMENT);
  EXPECT_NE(engine_.wait(drop).AsEngineDone(), nullptr);
  EXPECT_NE(engine_.wait(forget).AsEngineDone(), nullptr);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(6, 2, 40, 4))), expected_);
  EXPECT_NE(engine_.ask(Harness::resume(4, 45)).AsEngineMoved(), nullptr);
}

TEST_F(ServerOps, ActivationsAreWipedBetweenModelsOnly) {
  ASSERT_NE(engine_.ask(Harness::resume(2, 20)).AsEngineMoved(), nullptr);
  for (const std::uint64_t op : {1U, 2U})
    ASSERT_NE(engine_.ask(Harness::op(op, 1, Harness::forward_backward({1}), op)).AsEngineOpDone(),
              nullptr);
  EXPECT_EQ(engine_.code().wipes, 1);
  ASSERT_NE(engine_.ask(Harness::op(3, 2, Harness::forward_backward({1}), 1)).AsEngineOpDone(),
            nullptr);
  EXPECT_EQ(engine_.code().wipes, 2);
}

TEST_F(ServerOps, AModelWhoseOpRunsIsNeitherParkedNorForgotten) {
  engine_.code().hold = true;
  const auto running = engine_.send(Harness::op(1, 1, Harness::forward_backward({2}), 1));
  EXPECT_EQ(failure_code(engine_.ask(park(false))), Code::INVALID_ARGUMENT);
  wire::EngineForgetT forget;
  forget.model = 1;
  EXPECT_EQ(failure_code(engine_.ask(forget)), Code::INVALID_ARGUMENT);
  engine_.code().hold = false;
  EXPECT_EQ(loss(engine_.wait(running)), 2);
}

TEST_F(ServerOps, ANewConnectionLearnsWhatIsHeldAndTakesTheRunningOpOver) {
  ASSERT_NE(engine_.ask(Harness::op(1, 1, Harness::forward_backward({2}), 1)).AsEngineOpDone(),
            nullptr);
  ASSERT_NE(engine_.ask(Harness::op(2, 1, Harness::optim(1), 2)).AsEngineOpDone(), nullptr);
  engine_.code().hold = true;
  engine_.send(Harness::op(3, 1, Harness::forward_backward({4, 5}), 3));
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  engine_.disconnect();
  engine_.connect();
  EXPECT_EQ(engine_.hello().running_op, 3U);
  ASSERT_EQ(engine_.hello().models.size(), 1U);
  const wire::ModelHeldT& model = *engine_.hello().models[0];
  EXPECT_EQ(model.model, 1U);
  EXPECT_EQ(model.step, 1U);
  EXPECT_EQ(model.applied_seq, 2U);
  EXPECT_EQ(model.committed_seq, 2U);
  ASSERT_EQ(model.segments.size(), 5U);
  EXPECT_EQ(model.segments[0]->device, (std::vector<std::uint32_t>{0, 1, 2}));
  const auto again = engine_.send(Harness::op(3, 1, Harness::forward_backward({4, 5}), 3));
  engine_.code().hold = false;
  EXPECT_EQ(loss(engine_.wait(again)), 9);
}

TEST_F(ServerOps, AResultThatNobodyTookIsGivenToTheNextConnection) {
  engine_.code().hold = true;
  engine_.send(Harness::op(3, 1, Harness::forward_backward({4, 5}), 1));
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  engine_.disconnect();
  engine_.code().hold = false;
  engine_.wait_for_steps(2);
  engine_.connect();
  // The op may still have been on its way out when the hello was made: both are true answers.
  if (engine_.hello().running_op == 0) {
    EXPECT_EQ(engine_.hello().finished_op, 3U);
    ASSERT_NE(engine_.hello().finished, nullptr);
    EXPECT_EQ(engine_.hello().finished->value.AsForwardBackwardResult()->loss_sum, 9);
  }
  EXPECT_EQ(loss(engine_.ask(Harness::op(3, 1, Harness::forward_backward({4, 5}), 1))), 9);
  EXPECT_EQ(engine_.code().steps, 2);  // not run again
  EXPECT_NE(drop(3).AsEngineDone(), nullptr);
  engine_.disconnect();
  engine_.connect();
  EXPECT_EQ(engine_.hello().finished_op, 0U);
}

TEST_F(ServerOps, AFailureThatNobodyTookIsGivenToTheNextConnection) {
  engine_.code().fail_step = true;
  engine_.send(Harness::op(3, 1, Harness::forward_backward({4}), 1));
  engine_.wait_for_steps(1);
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  engine_.disconnect();
  engine_.connect();
  const auto reply = engine_.ask(Harness::op(3, 1, Harness::forward_backward({4}), 1));
  EXPECT_EQ(failure_code(reply), Code::NO_CAPACITY);
}

TEST_F(ServerOps, AYieldedOpIsThereAfterAReconnect) {
  run_until_yield(Harness::generate(1, 1, 40, 4));
  engine_.disconnect();
  engine_.connect();
  ASSERT_EQ(engine_.hello().models[0]->segments.size(), 6U);
  EXPECT_EQ(engine_.hello().models[0]->segments[5]->kind, SegmentKind::Kv);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(1, 1, 40, 4))), expected_);
}

}  // namespace
}  // namespace plexrl::worker
