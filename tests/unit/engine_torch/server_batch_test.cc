// SPDX-License-Identifier: Apache-2.0
// Generate ops of one base that run as one batch: who joins, leaves, fails and is dropped.
#include <gtest/gtest.h>

#include "engine_torch/server_harness.h"

namespace plexrl::worker {
namespace {

using Harness = ServerHarness;
using wire::SegmentKind;

constexpr std::uint64_t kAdapter = 5;  // the others sample only

class ServerBatch : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.attach();
    wire::EngineResumeT base;
    base.segments.push_back(std::make_unique<wire::SegmentPlaceT>());
    base.segments[0]->kind = SegmentKind::Base;
    base.segments[0]->bytes = Harness::kSegmentBytes;
    base.segments[0]->device = {0, 1, 2};
    ASSERT_NE(engine_.ask(std::move(base)).AsEngineMoved(), nullptr);
    auto adapter = Harness::resume(kAdapter, 10);
    adapter.mode = wire::TrainMode::Lora;
    adapter.lora_rank = 8;
    ASSERT_NE(engine_.ask(std::move(adapter)).AsEngineMoved(), nullptr);
    for (const std::uint64_t model : {6U, 7U, 8U, 9U}) {
      wire::EngineResumeT sampler;
      sampler.model = model;
      ASSERT_NE(engine_.ask(std::move(sampler)).AsEngineMoved(), nullptr);
    }
  }
  // Op and model have the same number, as has the chunk of its KV from 40 on.
  std::uint64_t start(std::uint64_t number, std::uint32_t count) {
    return engine_.send(generate(number, count));
  }
  static wire::EngineRunOpT generate(std::uint64_t number, std::uint32_t count) {
    return Harness::generate(number, number, 40 + static_cast<std::uint32_t>(number), count);
  }
  std::uint64_t send_drop(std::uint64_t op) {
    wire::EngineDropOpT ask;
    ask.op = op;
    return engine_.send(ask);
  }
  void yield(std::uint64_t op) {
    wire::EngineYieldT ask;
    ask.op = op;
    ASSERT_NE(engine_.ask(ask).AsEngineDone(), nullptr);
  }
  // What was sent before has been looked at.
  void settle() { ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr); }
  static std::vector<std::int32_t> expected(std::uint32_t count) {
    std::vector<std::int32_t> out;
    for (std::uint32_t i = 0; i < count; ++i) out.push_back(1000 + static_cast<std::int32_t>(i));
    return out;
  }
  static std::vector<std::int32_t> tokens(const wire::EngineBodyUnion& reply) {
    const auto* const done = reply.AsEngineOpDone();
    if (done == nullptr || done->value.AsGenerateResult() == nullptr) return {};
    return done->value.AsGenerateResult()->sequences[0]->tokens;
  }

  Harness engine_{wire::TrainMode::Lora};
};

TEST_F(ServerBatch, OpsOfOneBaseRunTogetherAndEachGetsItsResult) {
  engine_.code().hold = true;
  const auto first = start(5, 6);
  settle();
  const auto second = start(6, 3);
  const auto third = start(7, 9);
  settle();
  engine_.code().hold = false;
  EXPECT_EQ(tokens(engine_.wait(first)), expected(6));
  EXPECT_EQ(tokens(engine_.wait(second)), expected(3));
  EXPECT_EQ(tokens(engine_.wait(third)), expected(9));
  EXPECT_EQ(engine_.code().largest_batch, 3);
  EXPECT_LT(engine_.code().steps, 6 + 3 + 9);
}

TEST_F(ServerBatch, OnlyGenerateOpsOfOtherModelsJoin) {
  engine_.code().hold = true;
  const auto first = start(6, 4);
  settle();
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(20, kAdapter, Harness::optim(1), 1))), Code::BUSY);
  EXPECT_EQ(failure_code(engine_.ask(Harness::generate(21, 6, 50, 4))), Code::BUSY);
  engine_.code().hold = false;
  EXPECT_EQ(tokens(engine_.wait(first)), expected(4));
  engine_.code().hold = true;
  const auto training = engine_.send(Harness::op(22, kAdapter, Harness::forward_backward({2}), 1));
  settle();
  EXPECT_EQ(failure_code(engine_.ask(generate(6, 4))), Code::BUSY);
  engine_.code().hold = false;
  EXPECT_NE(engine_.wait(training).AsEngineOpDone(), nullptr);
}

TEST_F(ServerBatch, OneYieldsAndTheOthersGoOn) {
  engine_.code().hold = true;
  const auto first = start(6, 8);
  const auto second = start(7, 8);
  settle();
  yield(6);
  engine_.code().hold = false;
  const auto yielded = engine_.wait(first);
  ASSERT_NE(yielded.AsEngineYielded(), nullptr);
  EXPECT_EQ(yielded.AsEngineYielded()->op, 6U);
  EXPECT_EQ(tokens(engine_.wait(second)), expected(8));
  EXPECT_EQ(tokens(engine_.ask(generate(6, 8))), expected(8));
}

// It had its token first, so that it comes on however often it is asked.
TEST_F(ServerBatch, AnOpThatIsAskedAgainAndAgainEnds) {
  int times = 0;
  for (; times < 8; ++times) {
    engine_.code().hold = true;
    const auto running = start(6, 4);
    yield(6);
    engine_.code().hold = false;
    const auto reply = engine_.wait(running);
    if (reply.AsEngineYielded() != nullptr) continue;
    EXPECT_EQ(tokens(reply), expected(4));
    break;
  }
  EXPECT_LT(times, 4);
}

TEST_F(ServerBatch, OneIsDroppedAndItsMemoryIsFree) {
  engine_.code().hold = true;
  const auto first = start(6, 8);
  const auto second = start(7, 8);
  const auto dropping = send_drop(6);
  settle();
  engine_.code().hold = false;
  EXPECT_EQ(failure_code(engine_.wait(first)), Code::CANCELLED);
  EXPECT_NE(engine_.wait(dropping).AsEngineDone(), nullptr);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(30, 8, 46, 4))), expected(4));
  EXPECT_EQ(tokens(engine_.wait(second)), expected(8));
}

TEST_F(ServerBatch, OneFailsAlone) {
  engine_.code().hold = true;
  engine_.code().fail_newest = true;
  const auto first = start(6, 8);
  settle();
  const auto second = start(7, 8);
  settle();
  engine_.code().hold = false;
  EXPECT_EQ(failure_code(engine_.wait(second)), Code::INVALID_ARGUMENT);
  EXPECT_EQ(tokens(engine_.wait(first)), expected(8));
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(30, 7, 47, 4))), expected(4));
}

TEST_F(ServerBatch, AnErrorOfTheBatchIsThatOfAllAndTheNextOnesRun) {
  engine_.code().hold = true;
  engine_.code().fail_batch = true;
  const auto first = start(6, 8);
  settle();
  const auto second = start(7, 8);
  settle();
  engine_.code().hold = false;
  EXPECT_EQ(failure_code(engine_.wait(first)), Code::NO_CAPACITY);
  EXPECT_EQ(failure_code(engine_.wait(second)), Code::NO_CAPACITY);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(30, 6, 46, 4))), expected(4));
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(31, 7, 47, 4))), expected(4));
}

TEST_F(ServerBatch, ARunThatIsRefusedTouchesNobody) {
  engine_.code().hold = true;
  const auto first = start(6, 8);
  settle();
  auto small = generate(7, 2000);  // more than its KV holds
  const auto second = engine_.send(std::move(small));
  settle();
  engine_.code().hold = false;
  EXPECT_EQ(failure_code(engine_.wait(second)), Code::INVALID_ARGUMENT);
  EXPECT_EQ(tokens(engine_.wait(first)), expected(8));
}

TEST_F(ServerBatch, DropZeroStopsAllThatSampleAndIsAnsweredThen) {
  engine_.code().hold = true;
  const auto first = start(6, 8);
  const auto second = start(7, 8);
  const auto dropping = send_drop(0);
  settle();
  engine_.code().hold = false;
  EXPECT_EQ(failure_code(engine_.wait(first)), Code::CANCELLED);
  EXPECT_EQ(failure_code(engine_.wait(second)), Code::CANCELLED);
  EXPECT_NE(engine_.wait(dropping).AsEngineDone(), nullptr);
  // The memory of both is free.
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(30, 8, 46, 4))), expected(4));
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(31, 9, 47, 4))), expected(4));
}

TEST_F(ServerBatch, ThePlexrldThatComesBackStopsThemAll) {
  engine_.code().hold = true;
  (void)start(6, 8);
  (void)start(7, 8);
  settle();
  engine_.disconnect();
  engine_.connect();
  EXPECT_TRUE(engine_.hello().running_op == 6 || engine_.hello().running_op == 7);
  const auto dropping = send_drop(0);
  settle();
  engine_.code().hold = false;
  EXPECT_NE(engine_.wait(dropping).AsEngineDone(), nullptr);
  EXPECT_EQ(tokens(engine_.ask(Harness::generate(30, 8, 46, 4))), expected(4));
}

TEST_F(ServerBatch, ResultsThatNobodyTookAreNotKept) {
  engine_.code().hold = true;
  (void)start(6, 2);
  settle();
  engine_.disconnect();
  engine_.code().hold = false;
  engine_.wait_for_steps(2);
  engine_.connect();
  EXPECT_EQ(engine_.hello().finished_op, 0U);
}

TEST_F(ServerBatch, ActivationsAreWipedBeforeOneOfTheBatchComputesAlone) {
  engine_.code().hold = true;
  const auto first = start(5, 4);
  const auto second = start(6, 4);
  settle();
  engine_.code().hold = false;
  EXPECT_EQ(tokens(engine_.wait(first)), expected(4));
  EXPECT_EQ(tokens(engine_.wait(second)), expected(4));
  const int before = engine_.code().wipes;
  ASSERT_NE(
      engine_.ask(Harness::op(20, kAdapter, Harness::forward_backward({1}), 1)).AsEngineOpDone(),
      nullptr);
  EXPECT_EQ(engine_.code().wipes, before + 1);
}

TEST_F(ServerBatch, TheBaseStaysWhileSomebodySamples) {
  engine_.code().hold = true;
  const auto first = start(6, 4);
  settle();
  wire::EngineSuspendT park;
  park.segments.push_back(std::make_unique<wire::SegmentPlaceT>());
  park.segments[0]->kind = SegmentKind::Base;
  park.segments[0]->bytes = Harness::kSegmentBytes;
  park.segments[0]->device = {0, 1, 2};
  EXPECT_EQ(failure_code(engine_.ask(std::move(park))), Code::INVALID_ARGUMENT);
  engine_.code().hold = false;
  EXPECT_EQ(tokens(engine_.wait(first)), expected(4));
}

}  // namespace
}  // namespace plexrl::worker
