// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_log.h"

#include <gtest/gtest.h>

#include "fakes/faulty_store.h"
#include "fakes/queued_store.h"

namespace plexrl::runtime {
namespace {

Op optim(std::uint64_t seq, double rate = 0.5) {
  Op op;
  op.id = OpId{100 + seq};
  op.model = ModelId{4};
  op.kind = core::OpKind::kOptimStep;
  op.seq = seq;
  wire::OptimStepArgsT args;
  args.learning_rate = rate;
  op.args.Set(args);
  return op;
}

OpOutcome stepped(std::uint64_t step) {
  OpOutcome outcome;
  wire::OptimStepResultT value;
  value.step = step;
  outcome.reply.value.Set(value);
  return outcome;
}

class OpLogTest : public ::testing::Test {
 protected:
  const ModelId model_{4};
  std::unique_ptr<store::StateStore> memory_ = store::make_memory_store();
  store::FaultyStore disk_{*memory_};
  store::QueuedStore store_{disk_};
  OpLog log_{store_.queue};
};

TEST_F(OpLogTest, GivesBackTheOpBeforeAndAfterTheStoreHasIt) {
  log_.append(optim(3, 0.25));
  for (int turn = 0; turn < 2; ++turn) {
    const auto op = log_.read(model_, 3);
    ASSERT_TRUE(op) << op.error().to_string();
    EXPECT_EQ(op->id, OpId{103});
    EXPECT_EQ(op->kind, core::OpKind::kOptimStep);
    EXPECT_EQ(op->args.AsOptimStepArgs()->learning_rate, 0.25);
    store_.run();
  }
}

TEST_F(OpLogTest, WhatWaitsForAllRowsIsCalledBehindTheLastOneAndAtOnceWithoutAny) {
  std::vector<int> called;
  log_.when_kept(model_, [&] { called.push_back(0); });
  EXPECT_EQ(called, std::vector{0});
  log_.append(optim(1));
  log_.put_result(model_, 1, stepped(1), [&] { called.push_back(1); });
  log_.when_kept(model_, [&] { called.push_back(2); });
  log_.when_kept(model_, [&] { called.push_back(3); });
  EXPECT_EQ(called, std::vector{0});
  store_.run();
  EXPECT_EQ(called, (std::vector{0, 1, 2, 3}));
}

TEST_F(OpLogTest, AResultIsKeptOnceItAndItsOpAreOnDiskInOneTransaction) {
  bool kept = false;
  log_.append(optim(1));
  log_.put_result(model_, 1, stepped(1), [&] { kept = true; });
  EXPECT_TRUE(log_.has_result(model_, 1));
  EXPECT_EQ(log_.result(model_, 1)->reply.value.AsOptimStepResult()->step, 1U);
  EXPECT_EQ(disk_.writes, 0);
  EXPECT_TRUE(store_.queue.write_group());
  EXPECT_EQ(disk_.writes, 1);
  EXPECT_FALSE(kept);
  store_.tell();
  EXPECT_TRUE(kept);
}

TEST_F(OpLogTest, WhatTheDiskRefusedIsKeptInMemoryAndStoredInOrder) {
  std::vector<int> kept;
  disk_.fault = [] { return store::FaultyStore::Fault::kBefore; };
  log_.append(optim(1));
  log_.put_result(model_, 1, stepped(1), [&] { kept.push_back(1); });
  store_.run();
  EXPECT_FALSE(log_.trouble().empty());
  EXPECT_EQ(log_.room(model_, core::OpKind::kOptimStep).code(), Code::BUSY);
  log_.append(optim(2));  // was accepted before
  log_.put_result(model_, 2, stepped(2), [&] { kept.push_back(2); });
  log_.retry();
  store_.run();
  EXPECT_TRUE(kept.empty());
  EXPECT_EQ(log_.read(model_, 2)->seq, 2U);
  EXPECT_EQ(log_.result(model_, 2)->reply.value.AsOptimStepResult()->step, 2U);
  disk_.fault = [] { return store::FaultyStore::Fault::kNone; };
  const int before = disk_.writes;
  log_.retry();
  log_.retry();  // the first one is under way
  store_.run();
  EXPECT_EQ(disk_.writes, before + 2) << "one row to try, then all";
  EXPECT_EQ(kept, (std::vector<int>{1, 2}));
  EXPECT_TRUE(log_.trouble().empty());
  EXPECT_TRUE(log_.room(model_, core::OpKind::kOptimStep).ok());
}

TEST_F(OpLogTest, ADiskThatFillsAgainBehindTheTrialKeepsTheOrder) {
  std::vector<int> kept;
  const auto full = [] { return store::FaultyStore::Fault::kBefore; };
  disk_.fault = full;
  for (int seq = 1; seq <= 3; ++seq)
    log_.put_result(model_, static_cast<std::uint64_t>(seq), stepped(1),
                    [&kept, seq] { kept.push_back(seq); });
  store_.run();
  int writes = 0;
  disk_.fault = [&] {
    return ++writes == 1 ? store::FaultyStore::Fault::kNone : store::FaultyStore::Fault::kBefore;
  };
  log_.retry();
  store_.run();
  EXPECT_EQ(kept, (std::vector<int>{1}));
  EXPECT_FALSE(log_.trouble().empty());
  disk_.fault = [] { return store::FaultyStore::Fault::kNone; };
  log_.retry();
  store_.run();
  EXPECT_EQ(kept, (std::vector<int>{1, 2, 3}));
}

TEST_F(OpLogTest, AForgottenModelKeepsNobodyWaiting) {
  int kept = 0;
  log_.append(optim(1));
  log_.put_result(model_, 1, stepped(1), [&] { ++kept; });
  log_.forget(model_);
  EXPECT_EQ(kept, 1);
  store_.run();
  EXPECT_EQ(kept, 1);
  OpLog again(store_.queue);
  ASSERT_TRUE(again.load().ok());
  EXPECT_EQ(again.last_known(model_), 0U);
}

TEST_F(OpLogTest, AForgottenModelTakesItsTroubleAlong) {
  disk_.fault = [] { return store::FaultyStore::Fault::kBefore; };
  log_.append(optim(1));
  store_.run();
  ASSERT_FALSE(log_.trouble().empty());
  disk_.fault = [] { return store::FaultyStore::Fault::kNone; };
  log_.forget(model_);
  store_.run();
  EXPECT_EQ(log_.trouble(), "");
}

TEST_F(OpLogTest, IsBusyWhileTheDiskIsFarBehind) {
  store::Batch large;
  large.put("t", 1, 1, std::string(store::WriteQueue::kCrowdedBytes, 'x'));
  store_.queue.write(std::make_shared<const store::Batch>(std::move(large)), {});
  EXPECT_EQ(log_.room(model_, core::OpKind::kOptimStep).code(), Code::BUSY);
  store_.run();
  EXPECT_TRUE(log_.room(model_, core::OpKind::kOptimStep).ok());
}

TEST_F(OpLogTest, ACommitErasesWhatItHolds) {
  for (std::uint64_t seq = 1; seq <= 3; ++seq) log_.append(optim(seq));
  log_.committed(model_, 2);
  EXPECT_EQ(log_.logged(model_), std::vector<std::uint64_t>{3});
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(log_.read(model_, 2).error().code(), Code::NOT_FOUND);
    EXPECT_TRUE(log_.read(model_, 3));
    store_.run();
  }
}

TEST_F(OpLogTest, ResultsAndFailuresAreKeptAcrossARestart) {
  log_.put_result(model_, 1, stepped(9), {});
  OpOutcome failed;
  failed.status = error(Code::INVALID_ARGUMENT, "datum 3 is wrong");
  log_.put_result(model_, 2, failed, {});
  OpLog again(store_.queue);
  ASSERT_TRUE(again.load().ok());
  EXPECT_EQ(again.last_result(model_), 2U);
  EXPECT_EQ(again.result(model_, 1)->reply.value.AsOptimStepResult()->step, 9U);
  EXPECT_EQ(again.result(model_, 2)->status, failed.status);
}

TEST_F(OpLogTest, OldResultsArePrunedButNotBehindLoggedOps) {
  for (std::uint64_t seq = 1; seq <= 3 * OpLog::kKeptResults; ++seq)
    log_.put_result(model_, seq, stepped(seq), {});
  EXPECT_FALSE(log_.has_result(model_, 1));
  EXPECT_TRUE(log_.has_result(model_, 3 * OpLog::kKeptResults));
  EXPECT_TRUE(log_.has_result(model_, 2 * OpLog::kKeptResults + 1));

  OpLog other(store_.queue);
  Op op = optim(1);
  op.model = ModelId{5};
  other.append(op);
  for (std::uint64_t seq = 1; seq <= 3 * OpLog::kKeptResults; ++seq)
    other.put_result(ModelId{5}, seq, stepped(seq), {});
  EXPECT_TRUE(other.has_result(ModelId{5}, 1));
}

TEST_F(OpLogTest, IsBusyWhenTooManyOpsWaitForACommit) {
  for (std::uint64_t seq = 1; seq <= OpLog::kMaxLoggedOps; ++seq) log_.append(optim(seq));
  store_.run();
  EXPECT_EQ(log_.room(model_, core::OpKind::kForwardBackward).code(), Code::BUSY);
  log_.committed(model_, 1);
  EXPECT_TRUE(log_.room(model_, core::OpKind::kForwardBackward).ok());
}

TEST_F(OpLogTest, AFullLogTakesTheStepThatEmptiesIt) {
  std::uint64_t seq = 0;
  while (seq < OpLog::kMaxLoggedOps) log_.append(optim(++seq));
  store_.run();
  EXPECT_EQ(log_.room(model_, core::OpKind::kSave).code(), Code::BUSY);
  EXPECT_TRUE(log_.room(model_, core::OpKind::kLoad).ok());
  while (log_.room(model_, core::OpKind::kOptimStep).ok()) log_.append(optim(++seq));
  EXPECT_EQ(seq, OpLog::kMaxLoggedOps + OpLog::kReservedOps);
}

TEST_F(OpLogTest, AFullLogWithoutAStepIsFinalAndNamesTheRemedy) {
  Op op = optim(0);
  op.kind = core::OpKind::kForwardBackward;
  op.args.Set(wire::ForwardBackwardArgsT{});
  for (op.seq = 1; op.seq <= OpLog::kMaxLoggedOps; ++op.seq) log_.append(op);
  store_.run();
  const Status full = log_.room(model_, core::OpKind::kForwardBackward);
  EXPECT_EQ(full.code(), Code::NO_CAPACITY);
  EXPECT_NE(full.text().find("take an optim_step"), std::string::npos) << full.text();
  EXPECT_TRUE(log_.room(model_, core::OpKind::kOptimStep).ok());
  OpLog again(store_.queue);
  ASSERT_TRUE(again.load().ok());
  EXPECT_EQ(again.room(model_, core::OpKind::kForwardBackward).code(), Code::NO_CAPACITY);
  log_.append(optim(op.seq));
  EXPECT_EQ(log_.room(model_, core::OpKind::kForwardBackward).code(), Code::BUSY)
      << "its commit is to come";
}

TEST_F(OpLogTest, ResultsOfRefusedOpsDoNotPileUpBehindLoggedOnes) {
  for (std::uint64_t seq = 1; seq <= 5000; ++seq) {
    if (seq % 1000 == 0) log_.append(optim(seq));
    log_.put_result(model_, seq, stepped(seq), {});
    store_.run();
  }
  std::size_t rows = 0;
  ASSERT_TRUE(
      memory_->scan("results", [&](std::uint64_t, std::uint64_t, std::string_view) { ++rows; })
          .ok());
  EXPECT_LE(rows, 2 * OpLog::kKeptResults + 5);
  EXPECT_TRUE(log_.result(model_, 1000));
  EXPECT_TRUE(log_.result(model_, 4999));
  EXPECT_FALSE(log_.has_result(model_, 2500));
}

TEST_F(OpLogTest, AnOpThatIsLoggedAgainCountsOnce) {
  Op op = optim(1);
  wire::SaveArgsT args;
  args.name = std::string(1 << 20, 'n');
  op.args.Set(args);
  for (std::uint64_t i = 0; i < OpLog::kMaxLoggedBytes >> 20; ++i) {
    log_.append(op);
    store_.run();
  }
  EXPECT_TRUE(log_.room(model_, core::OpKind::kForwardBackward).ok());
}

// A manifest that is written behind push() is on disk only with all rows before it.
TEST_F(OpLogTest, WhatIsWrittenBehindAPushIsThereOnlyWithTheRowsThatWereRefused) {
  const auto manifest_is_there = [this] { return memory_->get("manifests", 4, 0).has_value(); };
  const auto write_manifest = [this] {
    log_.push(model_);
    store::Batch batch;
    batch.put("manifests", 4, 0, "all up to 2");
    store_.queue.write(std::make_shared<const store::Batch>(std::move(batch)), {});
    store_.run();
  };
  disk_.fault = [] { return store::FaultyStore::Fault::kBefore; };
  int kept = 0;
  for (std::uint64_t seq = 1; seq <= 2; ++seq) {
    log_.append(optim(seq));
    log_.put_result(model_, seq, stepped(seq), [&] { ++kept; });
  }
  store_.run();
  write_manifest();
  EXPECT_FALSE(manifest_is_there());
  disk_.fault = [] { return store::FaultyStore::Fault::kNone; };
  write_manifest();
  EXPECT_TRUE(manifest_is_there());
  EXPECT_EQ(kept, 2);
  EXPECT_TRUE(log_.trouble().empty());
  for (std::uint64_t seq = 1; seq <= 2; ++seq) EXPECT_TRUE(memory_->get("results", 4, seq)) << seq;
}

TEST_F(OpLogTest, DamagedRowsAreErrorsNotCrashes) {
  ASSERT_TRUE(memory_->put("ops", 4, 1, "garbage").ok());
  ASSERT_TRUE(memory_->put("results", 4, 1, "garbage").ok());
  ASSERT_TRUE(log_.load().ok());
  EXPECT_EQ(log_.read(model_, 1).error().code(), Code::CORRUPT);
  EXPECT_EQ(log_.result(model_, 1).error().code(), Code::CORRUPT);
}

TEST_F(OpLogTest, ForgetErasesEverythingOfTheModel) {
  log_.append(optim(1));
  log_.put_result(model_, 1, stepped(1), {});
  log_.forget(model_);
  OpLog again(store_.queue);
  ASSERT_TRUE(again.load().ok());
  EXPECT_TRUE(again.logged(model_).empty());
  EXPECT_EQ(again.last_result(model_), 0U);
}

}  // namespace
}  // namespace plexrl::runtime
