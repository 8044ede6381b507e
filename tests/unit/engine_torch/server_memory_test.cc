// SPDX-License-Identifier: Apache-2.0
// Resume, suspend, commit and forget, with a device that fails on demand.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine_torch/server_harness.h"

namespace plexrl::worker {
namespace {

using Harness = ServerHarness;
using wire::SegmentKind;

const std::vector<SegmentKind> kCommitted = {SegmentKind::Weights, SegmentKind::AdamM,
                                             SegmentKind::AdamV, SegmentKind::SamplerWeights};

class ServerMemory : public ::testing::Test {
 protected:
  void SetUp() override { engine_.attach(); }

  void resume_fresh(std::uint64_t model = 1, std::uint32_t device = 0) {
    ASSERT_NE(engine_.ask(Harness::resume(model, device)).AsEngineMoved(), nullptr);
    await_fill();
  }
  // Until nothing of a model comes late any more.
  void await_fill() { ASSERT_NE(engine_.ask(wire::EngineAwaitFillT()).AsEngineDone(), nullptr); }
  // One step: gradients `token`, weights -= rate * token.
  void train(std::uint64_t seq, std::int32_t token, std::uint64_t model = 1) {
    const auto fb = engine_.ask(Harness::op(++op_, model, Harness::forward_backward({token}), seq));
    ASSERT_NE(fb.AsEngineOpDone(), nullptr);
    ASSERT_NE(engine_.ask(Harness::op(++op_, model, Harness::optim(1.0), seq + 1)).AsEngineOpDone(),
              nullptr);
  }
  static wire::EngineSuspendT suspend(std::uint32_t device, std::uint32_t host,
                                      const std::vector<SegmentKind>& kinds) {
    wire::EngineSuspendT out;
    out.model = 1;
    out.segments = Harness::places(device, host, kinds);
    return out;
  }
  static wire::EngineCommitT commit(std::uint32_t host, std::uint64_t epoch) {
    wire::EngineCommitT out;
    out.model = 1;
    out.epoch = epoch;
    out.segments = Harness::places(0, host, kCommitted);
    std::erase_if(out.segments, [](const auto& place) { return place->host.empty(); });
    return out;
  }
  static wire::EngineResumeT resume_from(std::uint32_t device, std::uint32_t host,
                                         std::uint64_t step, std::uint64_t seq) {
    wire::EngineResumeT out = Harness::resume(1, device);
    out.segments = Harness::places(device, host, kCommitted);
    out.step = step;
    out.seq = seq;
    return out;
  }
  float weight_of_next_step(std::uint64_t seq) {
    const auto done = engine_.ask(Harness::op(++op_, 1, Harness::optim(0.0), seq));
    EXPECT_NE(done.AsEngineOpDone(), nullptr);
    return static_cast<float>(done.AsEngineOpDone()->value.AsOptimStepResult()->grad_norm);
  }

  Harness engine_;
  std::uint64_t op_ = 0;
};

TEST_F(ServerMemory, AFreshModelStartsFromTheBase) {
  resume_fresh();
  EXPECT_EQ(weight_of_next_step(1), FakeModelCode::kBaseWeight);
}

TEST_F(ServerMemory, WhatIsCopiedInIsSettled) {
  resume_fresh();
  ASSERT_NE(engine_.ask(suspend(0, 10, kCommitted)).AsEngineMoved(), nullptr);
  const int before = engine_.device().settled();
  ASSERT_NE(engine_.ask(resume_from(0, 10, 0, 0)).AsEngineMoved(), nullptr);
  await_fill();
  EXPECT_EQ(engine_.device().settled() - before, 4);
}

TEST_F(ServerMemory, SuspendAndResumeKeepTheBits) {
  resume_fresh();
  train(1, 5);
  const auto out = engine_.ask(suspend(0, 10, kCommitted));
  ASSERT_NE(out.AsEngineMoved(), nullptr);
  EXPECT_EQ(out.AsEngineMoved()->bytes_out, 4 * Harness::kSegmentBytes);
  EXPECT_EQ(out.AsEngineMoved()->step, 1U);
  EXPECT_EQ(out.AsEngineMoved()->seq, 2U);
  const auto in = engine_.ask(resume_from(30, 10, 1, 2));  // other device chunks
  ASSERT_NE(in.AsEngineMoved(), nullptr);
  EXPECT_EQ(in.AsEngineMoved()->bytes_in, 2 * Harness::kSegmentBytes) << "the moments come late";
  EXPECT_EQ(weight_of_next_step(3), FakeModelCode::kBaseWeight - 5);
}

TEST_F(ServerMemory, PendingGradientsAreParkedWhenTheyAreNamed) {
  resume_fresh();
  ASSERT_NE(engine_.ask(Harness::op(1, 1, Harness::forward_backward({5}), 1)).AsEngineOpDone(),
            nullptr);
  auto all = kCommitted;
  all.push_back(SegmentKind::Gradients);
  const auto out = engine_.ask(suspend(0, 10, all));
  ASSERT_NE(out.AsEngineMoved(), nullptr);
  EXPECT_TRUE(out.AsEngineMoved()->gradients_pending);
  EXPECT_EQ(out.AsEngineMoved()->seq, 0U);  // a commit would not have op 1
  auto back = resume_from(0, 10, 0, 0);
  back.segments = Harness::places(0, 10, all);
  back.gradients_pending = true;
  ASSERT_NE(engine_.ask(std::move(back)).AsEngineMoved(), nullptr);
  const auto done = engine_.ask(Harness::op(2, 1, Harness::optim(1.0), 2));
  EXPECT_EQ(done.AsEngineOpDone()->value.AsOptimStepResult()->grad_norm,
            FakeModelCode::kBaseWeight - 5);
}

TEST_F(ServerMemory, WhatIsNotCopiedIsZeroedBeforeItPassesOn) {
  resume_fresh();
  ASSERT_NE(engine_.ask(Harness::op(1, 1, Harness::forward_backward({5}), 1)).AsEngineOpDone(),
            nullptr);
  wire::EngineForgetT forget;
  forget.model = 1;
  ASSERT_NE(engine_.ask(forget).AsEngineDone(), nullptr);
  resume_fresh(2);  // the same device chunks: the gradients there are another tenant's
  const auto done = engine_.ask(Harness::op(2, 2, Harness::optim(1.0), 1));
  EXPECT_EQ(done.AsEngineOpDone()->value.AsOptimStepResult()->grad_norm,
            FakeModelCode::kBaseWeight);
}

// Whatever lay in the chunks that a model is given, in either pool and in every way in which it
// gets them, is gone when the model has them.
TEST_F(ServerMemory, NothingOfEarlierTenantsIsInAChunkThatAModelIsGiven) {
  constexpr std::byte kSecret{0x5a};
  constexpr std::uint32_t kModelChunks = 5 * Harness::kSegmentChunks;
  engine_.fill_pools(kSecret);
  resume_fresh();  // initialised and zeroed
  EXPECT_EQ(engine_.found_in_device(kSecret, 0, kModelChunks), 0U);
  ASSERT_NE(engine_.ask(Harness::generate(100, 1, 40, 4)).AsEngineOpDone(), nullptr);  // KV
  EXPECT_EQ(engine_.found_in_device(kSecret, 40, 1), 0U);
  train(1, 5);
  ASSERT_NE(engine_.ask(commit(10, 1)).AsEngineCommitted(), nullptr);
  auto all = kCommitted;
  all.push_back(SegmentKind::Gradients);
  ASSERT_NE(engine_.ask(suspend(0, 40, all)).AsEngineMoved(), nullptr);
  for (const std::uint32_t segment : {0U, 1U, 2U, 4U})
    EXPECT_EQ(engine_.found_in_host(kSecret, 10 + segment * Harness::kSegmentChunks,
                                    Harness::kSegmentChunks),
              0U);
  EXPECT_EQ(engine_.found_in_host(kSecret, 40, kModelChunks), 0U);
  ASSERT_NE(engine_.ask(resume_from(20, 40, 1, 2)).AsEngineMoved(), nullptr);  // copied in
  await_fill();
  EXPECT_EQ(engine_.found_in_device(kSecret, 20, kModelChunks), 0U);
  // What nobody was given is as it was: the search finds what it looks for.
  EXPECT_EQ(engine_.found_in_device(kSecret, 41, 1), Harness::kChunk);
  EXPECT_EQ(engine_.found_in_host(kSecret, 0, 10), 10 * Harness::kChunk);
}

TEST_F(ServerMemory, ParkedKvBringsNothingOfEarlierTenants) {
  constexpr std::byte kSecret{0x5a};
  resume_fresh();
  engine_.fill_pools(kSecret);  // the model's own chunks too, which does not matter here
  engine_.code().hold = true;
  const auto running = engine_.send(Harness::generate(1, 1, 40, 4));
  wire::EngineYieldT yield;
  yield.op = 1;
  ASSERT_NE(engine_.ask(yield).AsEngineDone(), nullptr);
  engine_.code().hold = false;
  ASSERT_NE(engine_.wait(running).AsEngineYielded(), nullptr);
  EXPECT_EQ(engine_.found_in_device(kSecret, 40, 1), 0U);
  const auto with_kv = [](auto request, std::uint32_t device) {
    auto place = std::make_unique<wire::SegmentPlaceT>();
    place->kind = SegmentKind::Kv;
    place->bytes = Harness::kChunk;
    place->device = {device};
    place->host = {80};
    request.segments.push_back(std::move(place));
    return request;
  };
  ASSERT_NE(engine_.ask(with_kv(suspend(0, 10, kCommitted), 40)).AsEngineMoved(), nullptr);
  EXPECT_EQ(engine_.found_in_host(kSecret, 80, 1), 0U);
  ASSERT_NE(engine_.ask(with_kv(resume_from(0, 10, 0, 0), 50)).AsEngineMoved(), nullptr);
  EXPECT_EQ(engine_.found_in_device(kSecret, 50, 1), 0U);
}

TEST_F(ServerMemory, TheRestOfTheLastHostChunkIsZeroed) {
  resume_fresh();
  engine_.fill_host(std::byte{0xab});
  ASSERT_NE(engine_.ask(suspend(0, 10, kCommitted)).AsEngineMoved(), nullptr);
  const std::size_t start = 10 * Harness::kChunk;
  EXPECT_EQ(engine_.host_byte(start + Harness::kSegmentBytes), std::byte{0});
  EXPECT_EQ(engine_.host_byte(start + 3 * Harness::kChunk - 1), std::byte{0});
  EXPECT_EQ(engine_.host_byte(start - 1), std::byte{0xab});
}

TEST_F(ServerMemory, AFailedMapLeavesTheModelParkedAndTheChunksFree) {
  auto request = Harness::resume(1, 0);
  request.segments[4]->device = {50, 52, 54};
  engine_.device().faults().map = 14;  // the second of them
  EXPECT_EQ(failure_code(engine_.ask(std::move(request))), Code::IO);
  EXPECT_EQ(engine_.ask(wire::EnginePingT()).AsEnginePong()->resident_bytes, 0U);
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(1, 1, Harness::optim(1), 1))),
            Code::INVALID_ARGUMENT);
  resume_fresh(2);  // every chunk is free again
  wire::EngineForgetT forget;
  forget.model = 2;
  ASSERT_NE(engine_.ask(forget).AsEngineDone(), nullptr);
  resume_fresh();
}

TEST_F(ServerMemory, AFailedCopyInLeavesTheModelParked) {
  resume_fresh();
  train(1, 5);
  ASSERT_NE(engine_.ask(suspend(0, 10, kCommitted)).AsEngineMoved(), nullptr);
  engine_.device().faults().copy_in = 2;
  EXPECT_EQ(failure_code(engine_.ask(resume_from(0, 10, 1, 2))), Code::IO);
  ASSERT_NE(engine_.ask(resume_from(0, 10, 1, 2)).AsEngineMoved(), nullptr);
  EXPECT_EQ(weight_of_next_step(3), FakeModelCode::kBaseWeight - 5);
}

// Wherever a resume ends before its answer, the model is parked, its chunks are another's, and the
// copy that it came from is untouched.
TEST_F(ServerMemory, WhereverAResumeFailsEverythingIsRolledBack) {
  resume_fresh();
  train(1, 5);
  ASSERT_NE(engine_.ask(suspend(0, 10, kCommitted)).AsEngineMoved(), nullptr);
  const auto copy = engine_.host_floats(10);
  wire::EngineForgetT forget;
  forget.model = 2;
  auto& faults = engine_.device().faults();
  const auto fails_at = [&](std::atomic<int>& fault, int call) {
    fault = call;
    EXPECT_EQ(failure_code(engine_.ask(resume_from(0, 10, 1, 2))), Code::IO);
    fault = 0;
    EXPECT_EQ(engine_.ask(wire::EnginePingT()).AsEnginePong()->resident_bytes, 0U);
    resume_fresh(2);
    EXPECT_NE(engine_.ask(forget).AsEngineDone(), nullptr);
    EXPECT_EQ(engine_.host_floats(10), copy);
  };
  for (int chunk = 1; chunk <= 5 * static_cast<int>(Harness::kSegmentChunks); ++chunk)
    fails_at(faults.map, chunk);
  for (int call = 1; call <= 2; ++call) fails_at(faults.copy_in, call);  // weights, sampler weights
  for (int call = 1; call <= 4; ++call) fails_at(faults.zero, call);  // gradients, ends of chunks
  ASSERT_NE(engine_.ask(resume_from(0, 10, 1, 2)).AsEngineMoved(), nullptr);
  EXPECT_EQ(weight_of_next_step(3), FakeModelCode::kBaseWeight - 5);
}

// The step needs the moments; had it not waited for them, they would be those of the copy.
TEST_F(ServerMemory, AnOpBeginsWhileTheMomentsAreComingAndAStepWaitsForThem) {
  resume_fresh();
  train(1, 5);
  ASSERT_NE(engine_.ask(suspend(0, 10, kCommitted)).AsEngineMoved(), nullptr);
  engine_.device().let_in(2);
  ASSERT_NE(engine_.ask(resume_from(0, 10, 1, 2)).AsEngineMoved(), nullptr);
  ASSERT_NE(engine_.ask(Harness::op(8, 1, Harness::forward_backward({7}), 3)).AsEngineOpDone(),
            nullptr);
  const int steps = engine_.code().steps;
  const auto step = engine_.send(Harness::op(9, 1, Harness::optim(1.0), 4));
  const auto filled = engine_.send(wire::EngineAwaitFillT());
  const auto copy = engine_.send(commit(40, 2));
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  EXPECT_EQ(engine_.code().steps, steps);
  engine_.device().let_in(-1);
  const auto done = engine_.wait(step);
  ASSERT_NE(done.AsEngineOpDone(), nullptr);
  EXPECT_GT(done.AsEngineOpDone()->switch_stall_ns, 0U);
  EXPECT_NE(engine_.wait(filled).AsEngineDone(), nullptr);
  ASSERT_NE(engine_.wait(copy).AsEngineCommitted(), nullptr);
  EXPECT_EQ(engine_.host_floats(40).front(), FakeModelCode::kBaseWeight - 12);
  EXPECT_EQ(engine_.host_floats(40 + Harness::kSegmentChunks).back(), 5 + 7);
}

TEST_F(ServerMemory, ASuspendBehindLateMomentsKeepsTheBits) {
  resume_fresh();
  train(1, 5);
  ASSERT_NE(engine_.ask(suspend(0, 10, kCommitted)).AsEngineMoved(), nullptr);
  engine_.device().let_in(2);
  ASSERT_NE(engine_.ask(resume_from(0, 10, 1, 2)).AsEngineMoved(), nullptr);
  const auto out = engine_.send(suspend(0, 40, kCommitted));
  engine_.device().let_in(-1);
  ASSERT_NE(engine_.wait(out).AsEngineMoved(), nullptr);
  for (std::uint32_t segment = 0; segment < 3; ++segment)
    EXPECT_EQ(engine_.host_floats(40 + segment * Harness::kSegmentChunks),
              engine_.host_floats(10 + segment * Harness::kSegmentChunks));
}

TEST_F(ServerMemory, APlexrldThatComesBackFindsAModelOnlyWhenAllOfItIsThere) {
  resume_fresh();
  train(1, 5);
  ASSERT_NE(engine_.ask(suspend(0, 10, kCommitted)).AsEngineMoved(), nullptr);
  engine_.device().let_in(2);
  ASSERT_NE(engine_.ask(resume_from(0, 10, 1, 2)).AsEngineMoved(), nullptr);
  engine_.disconnect();
  engine_.device().let_in(-1);
  engine_.connect();
  ASSERT_EQ(engine_.hello().models.size(), 1U);
  EXPECT_EQ(weight_of_next_step(3), FakeModelCode::kBaseWeight - 5);
  ASSERT_NE(engine_.ask(commit(40, 2)).AsEngineCommitted(), nullptr);
  EXPECT_EQ(engine_.host_floats(40 + Harness::kSegmentChunks).back(), 5);
}

// The model is in use by then: there is nothing to go back to but its manifest.
TEST_F(ServerMemory, LateMomentsThatFailEndTheEngine) {
  resume_fresh();
  train(1, 5);
  ASSERT_NE(engine_.ask(suspend(0, 10, kCommitted)).AsEngineMoved(), nullptr);
  engine_.device().faults().copy_in = 3;
  ASSERT_NE(engine_.ask(resume_from(0, 10, 1, 2)).AsEngineMoved(), nullptr);
  const Status end = engine_.ended();
  EXPECT_EQ(end.code(), Code::IO);
  EXPECT_NE(end.text().find("model 1"), std::string::npos) << end.to_string();
}

TEST_F(ServerMemory, ABaseThatCannotBeLoadedIsAClearErrorAndNotTheEnd) {
  engine_.code().fail_base = true;
  const auto reply = engine_.ask(Harness::resume(1, 0));
  ASSERT_EQ(failure_code(reply), Code::CORRUPT);
  EXPECT_EQ(reply.AsFailure()->text, "Weights: model.safetensors: fake damage");
  engine_.code().fail_base = false;
  resume_fresh();
}

TEST_F(ServerMemory, AFailedCopyOutLeavesTheModelResidentAndWhole) {
  resume_fresh();
  train(1, 5);
  engine_.device().faults().copy_out = 2;
  EXPECT_EQ(failure_code(engine_.ask(suspend(0, 10, kCommitted))), Code::IO);
  EXPECT_EQ(weight_of_next_step(3), FakeModelCode::kBaseWeight - 5);
}

TEST_F(ServerMemory, AModelThatCannotBeUnmappedIsOnlyForgotten) {
  resume_fresh();
  engine_.device().faults().unmap = 1;
  EXPECT_EQ(failure_code(engine_.ask(suspend(0, 10, kCommitted))), Code::IO);
  EXPECT_EQ(failure_code(engine_.ask(Harness::op(1, 1, Harness::optim(1), 1))),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(failure_code(engine_.ask(Harness::resume(1, 30))), Code::INVALID_ARGUMENT);
  wire::EngineForgetT forget;
  forget.model = 1;
  ASSERT_NE(engine_.ask(forget).AsEngineDone(), nullptr);
  resume_fresh();
}

TEST_F(ServerMemory, WrongResumesAreRefused) {
  auto missing = Harness::resume(1, 0);
  missing.segments.pop_back();
  EXPECT_EQ(failure_code(engine_.ask(std::move(missing))), Code::INVALID_ARGUMENT);
  auto no_memory = Harness::resume(1, 0);
  no_memory.segments[0]->device.clear();
  EXPECT_EQ(failure_code(engine_.ask(std::move(no_memory))), Code::INVALID_ARGUMENT);
  auto wrong_size = Harness::resume(1, 0);
  wrong_size.segments[0]->bytes += 1;
  EXPECT_EQ(failure_code(engine_.ask(std::move(wrong_size))), Code::INVALID_ARGUMENT);
  auto outside = Harness::resume(1, 0);
  outside.segments[0]->device[2] = Harness::kDeviceChunks;
  EXPECT_EQ(failure_code(engine_.ask(std::move(outside))), Code::INVALID_ARGUMENT);
  auto wrong_kind = Harness::resume(1, 0);
  wrong_kind.segments[0]->kind = static_cast<SegmentKind>(99);
  EXPECT_EQ(failure_code(engine_.ask(std::move(wrong_kind))), Code::INVALID_ARGUMENT);
  auto no_weights = Harness::resume(1, 0);
  no_weights.step = 4;
  EXPECT_EQ(failure_code(engine_.ask(std::move(no_weights))), Code::INVALID_ARGUMENT);
  auto no_sampler = Harness::resume(1, 0);
  no_sampler.version = 4;
  EXPECT_EQ(failure_code(engine_.ask(std::move(no_sampler))), Code::INVALID_ARGUMENT);
  resume_fresh();
  EXPECT_EQ(failure_code(engine_.ask(Harness::resume(1, 30))), Code::INVALID_ARGUMENT);  // resident
  auto other_rank = Harness::resume(1, 30);
  other_rank.lora_rank = 8;
  EXPECT_EQ(failure_code(engine_.ask(std::move(other_rank))), Code::INVALID_ARGUMENT);
}

TEST(ServerMemoryBare, ResumeNeedsPools) {
  ServerHarness engine;
  EXPECT_EQ(failure_code(engine.ask(Harness::resume(1, 0))), Code::INVALID_ARGUMENT);
}

TEST_F(ServerMemory, WrongSuspendsAndCommitsAreRefused) {
  EXPECT_EQ(failure_code(engine_.ask(suspend(0, 10, kCommitted))), Code::INVALID_ARGUMENT);
  EXPECT_EQ(failure_code(engine_.ask(commit(10, 1))), Code::INVALID_ARGUMENT);
  resume_fresh();
  auto no_host = commit(10, 1);
  no_host.segments[0]->host.clear();
  EXPECT_EQ(failure_code(engine_.ask(std::move(no_host))), Code::INVALID_ARGUMENT);
  auto gradients = commit(10, 1);
  gradients.segments[0]->kind = SegmentKind::Gradients;
  EXPECT_EQ(failure_code(engine_.ask(std::move(gradients))), Code::INVALID_ARGUMENT);
  auto outside = commit(10, 1);
  outside.segments[0]->host[0] = Harness::kHostChunks;
  EXPECT_EQ(failure_code(engine_.ask(std::move(outside))), Code::INVALID_ARGUMENT);
  auto short_list = suspend(0, 10, kCommitted);
  short_list.segments[0]->host.pop_back();
  EXPECT_EQ(failure_code(engine_.ask(std::move(short_list))), Code::INVALID_ARGUMENT);
  EXPECT_EQ(weight_of_next_step(1), FakeModelCode::kBaseWeight);
}

TEST_F(ServerMemory, ACommitEqualsTheStateAndNamesIt) {
  resume_fresh();
  train(1, 5);
  const auto reply = engine_.ask(commit(10, 7));
  const auto* const done = reply.AsEngineCommitted();
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(done->model, 1U);
  EXPECT_EQ(done->epoch, 7U);
  EXPECT_EQ(done->step, 1U);
  EXPECT_EQ(done->seq, 2U);
  EXPECT_FALSE(done->gradients_pending);
  EXPECT_EQ(done->bytes, 4 * Harness::kSegmentBytes);
  const auto weights = engine_.host_floats(10);
  EXPECT_TRUE(std::all_of(weights.begin(), weights.end(),
                          [](float w) { return w == FakeModelCode::kBaseWeight - 5; }));
}

TEST_F(ServerMemory, ACommitInsideAnAccumulationIsThatOfTheLastStep) {
  resume_fresh();
  train(1, 5);
  ASSERT_NE(engine_.ask(Harness::op(++op_, 1, Harness::forward_backward({9}), 3)).AsEngineOpDone(),
            nullptr);
  // A published version does not move the number past gradients that the commit does not hold.
  ASSERT_NE(engine_.ask(Harness::op(++op_, 1, Harness::publish(), 4)).AsEngineOpDone(), nullptr);
  const auto reply = engine_.ask(commit(10, 1));
  ASSERT_NE(reply.AsEngineCommitted(), nullptr);
  EXPECT_EQ(reply.AsEngineCommitted()->seq, 2U);
  EXPECT_EQ(reply.AsEngineCommitted()->version, 104U);
  EXPECT_FALSE(reply.AsEngineCommitted()->gradients_pending);
}

TEST_F(ServerMemory, AFailedCommitLeavesTheModelUsable) {
  resume_fresh();
  train(1, 5);
  engine_.device().faults().copy_out = 3;
  EXPECT_EQ(failure_code(engine_.ask(commit(10, 1))), Code::IO);
  EXPECT_NE(engine_.ask(commit(10, 2)).AsEngineCommitted(), nullptr);
  EXPECT_EQ(weight_of_next_step(3), FakeModelCode::kBaseWeight - 5);
}

// Wherever a commit ends, the epoch before is whole: that is what a manifest that did not flip
// points to.
TEST_F(ServerMemory, WhereverACommitEndsTheEpochBeforeIsWhole) {
  resume_fresh();
  train(1, 5);
  ASSERT_NE(engine_.ask(commit(10, 1)).AsEngineCommitted(), nullptr);
  const auto epoch = [&] {
    std::vector<float> all;
    for (std::uint32_t segment : {0U, 1U, 2U, 4U}) {
      const auto part = engine_.host_floats(10 + segment * Harness::kSegmentChunks);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  const auto before = epoch();
  train(3, 9);
  for (int write = 1; write <= 4; ++write) {
    engine_.device().faults().copy_out = write;
    EXPECT_EQ(failure_code(engine_.ask(commit(40, 2))), Code::IO);
    EXPECT_EQ(epoch(), before);
  }
  ASSERT_NE(engine_.ask(commit(40, 2)).AsEngineCommitted(), nullptr);
  EXPECT_EQ(epoch(), before);
  EXPECT_EQ(engine_.host_floats(40).front(), FakeModelCode::kBaseWeight - 14);
}

TEST_F(ServerMemory, ACommitWaitsForTheOpThatWritesAndTheNextOneForTheCommit) {
  resume_fresh();
  ASSERT_NE(engine_.ask(Harness::op(1, 1, Harness::forward_backward({5}), 1)).AsEngineOpDone(),
            nullptr);
  engine_.code().hold = true;
  const auto step = engine_.send(Harness::op(2, 1, Harness::optim(1.0), 2));
  const auto copy = engine_.send(commit(10, 1));
  ASSERT_NE(engine_.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
  engine_.code().hold = false;
  ASSERT_NE(engine_.wait(step).AsEngineOpDone(), nullptr);
  const auto next = engine_.send(Harness::op(3, 1, Harness::optim(1.0), 3));
  const auto reply = engine_.wait(copy);
  ASSERT_NE(reply.AsEngineCommitted(), nullptr);
  EXPECT_EQ(reply.AsEngineCommitted()->step, 1U);
  EXPECT_GT(reply.AsEngineCommitted()->stall_ns, 0U);
  EXPECT_NE(engine_.wait(next).AsEngineOpDone(), nullptr);
  const auto weights = engine_.host_floats(10);
  EXPECT_EQ(weights.front(), FakeModelCode::kBaseWeight - 5);
  EXPECT_EQ(weights.back(), FakeModelCode::kBaseWeight - 5);
}

// An op that only reads, or writes gradients, runs beside the copy: it would deadlock here if it
// waited, because the copy is ordered behind it.
TEST_F(ServerMemory, ACommitRunsBesideAForwardBackward) {
  resume_fresh();
  train(1, 5);
  engine_.code().hold = true;
  const auto beside = engine_.send(Harness::op(8, 1, Harness::forward_backward({1}), 3));
  const auto reply = engine_.ask(commit(10, 1));
  ASSERT_NE(reply.AsEngineCommitted(), nullptr);
  EXPECT_EQ(reply.AsEngineCommitted()->stall_ns / 1'000'000'000, 0U);
  engine_.code().hold = false;
  ASSERT_NE(engine_.wait(beside).AsEngineOpDone(), nullptr);
}

TEST_F(ServerMemory, AdaptersNeedTheirBase) {
  ServerHarness engine(wire::TrainMode::Lora);
  engine.attach();
  auto adapter = Harness::resume(5, 10);
  adapter.mode = wire::TrainMode::Lora;
  adapter.lora_rank = 8;
  EXPECT_EQ(failure_code(engine.ask(std::move(adapter))), Code::INVALID_ARGUMENT);
  wire::EngineResumeT base;
  base.mode = wire::TrainMode::None;
  base.segments.push_back(std::make_unique<wire::SegmentPlaceT>());
  base.segments[0]->kind = SegmentKind::Base;
  base.segments[0]->bytes = Harness::kSegmentBytes;
  base.segments[0]->device = {0, 1, 2};
  ASSERT_NE(engine.ask(std::move(base)).AsEngineMoved(), nullptr);
  auto again = Harness::resume(5, 10);
  again.mode = wire::TrainMode::Lora;
  again.lora_rank = 8;
  ASSERT_NE(engine.ask(std::move(again)).AsEngineMoved(), nullptr);
  // Weights of an adapter come from its seed.
  const auto done = engine.ask(Harness::op(1, 5, Harness::optim(0.0), 1));
  ASSERT_NE(done.AsEngineOpDone(), nullptr);
  EXPECT_EQ(done.AsEngineOpDone()->value.AsOptimStepResult()->grad_norm, 3);
  // A model that samples only has no segments of its own.
  wire::EngineResumeT sampler;
  sampler.model = 6;
  ASSERT_NE(engine.ask(std::move(sampler)).AsEngineMoved(), nullptr);
  wire::EngineForgetT forget;
  EXPECT_EQ(failure_code(engine.ask(forget)), Code::INVALID_ARGUMENT);
}

TEST_F(ServerMemory, OpsOfAnAdapterNeedTheBaseResident) {
  ServerHarness engine(wire::TrainMode::Lora);
  engine.attach();
  const auto base_place = [] {
    auto place = std::make_unique<wire::SegmentPlaceT>();
    place->kind = SegmentKind::Base;
    place->bytes = Harness::kSegmentBytes;
    place->device = {0, 1, 2};
    return place;
  };
  wire::EngineResumeT base;
  base.segments.push_back(base_place());
  ASSERT_NE(engine.ask(std::move(base)).AsEngineMoved(), nullptr);
  auto adapter = Harness::resume(5, 10);
  adapter.mode = wire::TrainMode::Lora;
  adapter.lora_rank = 8;
  ASSERT_NE(engine.ask(std::move(adapter)).AsEngineMoved(), nullptr);
  wire::EngineSuspendT park;
  park.segments.push_back(base_place());
  ASSERT_NE(engine.ask(std::move(park)).AsEngineMoved(), nullptr);
  EXPECT_EQ(failure_code(engine.ask(Harness::op(1, 5, Harness::optim(0.0), 1))),
            Code::INVALID_ARGUMENT);
}

TEST_F(ServerMemory, ACommitPlannedBeforeAnOpEndedIsRefusedWithoutWhatTheOpWrote) {
  resume_fresh();
  train(1, 5);
  const auto planned = [](const std::vector<SegmentKind>& kinds, std::uint64_t epoch) {
    wire::EngineCommitT out = commit(20, epoch);
    std::erase_if(out.segments, [&](const auto& place) {
      return std::find(kinds.begin(), kinds.end(), place->kind) == kinds.end();
    });
    return out;
  };
  const std::vector<SegmentKind> trained = {SegmentKind::Weights, SegmentKind::AdamM,
                                            SegmentKind::AdamV};
  const std::vector<SegmentKind> sampled = {SegmentKind::SamplerWeights};
  EXPECT_EQ(failure_code(engine_.ask(planned(sampled, 1))), Code::BUSY);
  ASSERT_NE(engine_.ask(planned(trained, 2)).AsEngineCommitted(), nullptr);
  auto publish = Harness::op(++op_, 1, Harness::publish(), 3);
  publish.version_out = 3;
  ASSERT_NE(engine_.ask(std::move(publish)).AsEngineOpDone(), nullptr);
  EXPECT_EQ(failure_code(engine_.ask(planned(trained, 3))), Code::BUSY);
  const auto last = engine_.ask(planned(sampled, 4));
  ASSERT_NE(last.AsEngineCommitted(), nullptr);
  EXPECT_EQ(last.AsEngineCommitted()->version, 3U);
}

}  // namespace
}  // namespace plexrl::worker
