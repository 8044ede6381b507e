// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_log.h"

#include <gtest/gtest.h>

#include "store/state_store.h"

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
  std::unique_ptr<store::StateStore> store_ = store::make_memory_store();
  OpLog log_{*store_};
};

TEST_F(OpLogTest, GivesBackTheOpWithItsNumbersAndArguments) {
  ASSERT_TRUE(log_.append(optim(3, 0.25)).ok());
  const auto op = log_.read(model_, 3);
  ASSERT_TRUE(op) << op.error().to_string();
  EXPECT_EQ(op->id, OpId{103});
  EXPECT_EQ(op->kind, core::OpKind::kOptimStep);
  EXPECT_EQ(op->args.AsOptimStepArgs()->learning_rate, 0.25);
}

TEST_F(OpLogTest, ACommitErasesWhatItHolds) {
  for (std::uint64_t seq = 1; seq <= 3; ++seq) ASSERT_TRUE(log_.append(optim(seq)).ok());
  ASSERT_TRUE(log_.committed(model_, 2).ok());
  EXPECT_EQ(log_.logged(model_), std::vector<std::uint64_t>{3});
  EXPECT_EQ(log_.read(model_, 2).error().code(), Code::NOT_FOUND);
}

TEST_F(OpLogTest, ResultsAndFailuresAreKeptAcrossARestart) {
  ASSERT_TRUE(log_.put_result(model_, 1, stepped(9)).ok());
  OpOutcome failed;
  failed.status = error(Code::INVALID_ARGUMENT, "datum 3 is wrong");
  ASSERT_TRUE(log_.put_result(model_, 2, failed).ok());
  OpLog again(*store_);
  ASSERT_TRUE(again.load().ok());
  EXPECT_EQ(again.last_result(model_), 2U);
  EXPECT_EQ(again.result(model_, 1)->reply.value.AsOptimStepResult()->step, 9U);
  EXPECT_EQ(again.result(model_, 2)->status, failed.status);
}

TEST_F(OpLogTest, OldResultsArePrunedButNotBehindLoggedOps) {
  for (std::uint64_t seq = 1; seq <= 3 * OpLog::kKeptResults; ++seq)
    ASSERT_TRUE(log_.put_result(model_, seq, stepped(seq)).ok());
  EXPECT_FALSE(log_.has_result(model_, 1));
  EXPECT_TRUE(log_.has_result(model_, 3 * OpLog::kKeptResults));
  EXPECT_TRUE(log_.has_result(model_, 2 * OpLog::kKeptResults + 1));

  OpLog other(*store_);
  Op op = optim(1);
  op.model = ModelId{5};
  ASSERT_TRUE(other.append(op).ok());
  for (std::uint64_t seq = 1; seq <= 3 * OpLog::kKeptResults; ++seq)
    ASSERT_TRUE(other.put_result(ModelId{5}, seq, stepped(seq)).ok());
  EXPECT_TRUE(other.has_result(ModelId{5}, 1));
}

TEST_F(OpLogTest, IsBusyWhenTooManyOpsWaitForACommit) {
  for (std::uint64_t seq = 1; seq <= OpLog::kMaxLoggedOps; ++seq)
    ASSERT_TRUE(log_.append(optim(seq)).ok());
  EXPECT_EQ(log_.room(model_, core::OpKind::kForwardBackward).code(), Code::BUSY);
  ASSERT_TRUE(log_.committed(model_, 1).ok());
  EXPECT_TRUE(log_.room(model_, core::OpKind::kForwardBackward).ok());
}

TEST_F(OpLogTest, AFullLogTakesTheStepThatEmptiesIt) {
  std::uint64_t seq = 0;
  while (seq < OpLog::kMaxLoggedOps) ASSERT_TRUE(log_.append(optim(++seq)).ok());
  EXPECT_EQ(log_.room(model_, core::OpKind::kSave).code(), Code::BUSY);
  EXPECT_TRUE(log_.room(model_, core::OpKind::kLoad).ok());
  while (log_.room(model_, core::OpKind::kOptimStep).ok())
    ASSERT_TRUE(log_.append(optim(++seq)).ok());
  EXPECT_EQ(seq, OpLog::kMaxLoggedOps + OpLog::kReservedOps);
}

TEST_F(OpLogTest, AnOpThatIsLoggedAgainCountsOnce) {
  Op op = optim(1);
  wire::SaveArgsT args;
  args.name = std::string(1 << 20, 'n');
  op.args.Set(args);
  for (std::uint64_t i = 0; i < OpLog::kMaxLoggedBytes >> 20; ++i)
    ASSERT_TRUE(log_.append(op).ok());
  EXPECT_TRUE(log_.room(model_, core::OpKind::kForwardBackward).ok());
}

TEST_F(OpLogTest, DamagedRowsAreErrorsNotCrashes) {
  ASSERT_TRUE(store_->put("ops", 4, 1, "garbage").ok());
  ASSERT_TRUE(store_->put("results", 4, 1, "garbage").ok());
  ASSERT_TRUE(log_.load().ok());
  EXPECT_EQ(log_.read(model_, 1).error().code(), Code::CORRUPT);
  EXPECT_EQ(log_.result(model_, 1).error().code(), Code::CORRUPT);
}

TEST_F(OpLogTest, ForgetErasesEverythingOfTheModel) {
  ASSERT_TRUE(log_.append(optim(1)).ok());
  ASSERT_TRUE(log_.put_result(model_, 1, stepped(1)).ok());
  ASSERT_TRUE(log_.forget(model_).ok());
  OpLog again(*store_);
  ASSERT_TRUE(again.load().ok());
  EXPECT_TRUE(again.logged(model_).empty());
  EXPECT_EQ(again.last_result(model_), 0U);
}

}  // namespace
}  // namespace plexrl::runtime
