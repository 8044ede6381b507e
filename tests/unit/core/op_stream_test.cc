// SPDX-License-Identifier: Apache-2.0
#include "core/op_stream.h"

#include <gtest/gtest.h>

namespace plexrl::core {
namespace {

using Answer = OpStream::Answer;

TEST(OpStream, NumbersInOrderAreAcceptedAtOnce) {
  OpStream stream;
  EXPECT_EQ(stream.next_seq(), 1u);
  EXPECT_EQ(stream.offer(1), Answer::kAccepted);
  EXPECT_EQ(stream.offer(2), Answer::kAccepted);
  EXPECT_EQ(stream.next_seq(), 3u);
  EXPECT_EQ(stream.next_ready(), std::nullopt);
}

TEST(OpStream, AGapWaitsAndIsDrainedInOrder) {
  OpStream stream;
  EXPECT_EQ(stream.offer(3), Answer::kWaits);
  EXPECT_EQ(stream.offer(2), Answer::kWaits);
  EXPECT_EQ(stream.next_ready(), std::nullopt);
  EXPECT_EQ(stream.next_seq(), 1u);
  EXPECT_EQ(stream.offer(1), Answer::kAccepted);
  EXPECT_EQ(stream.next_ready(), 2u);
  EXPECT_EQ(stream.next_ready(), 3u);
  EXPECT_EQ(stream.next_ready(), std::nullopt);
  EXPECT_EQ(stream.next_seq(), 4u);
}

TEST(OpStream, ARetriedNumberIsRecognisedInEveryState) {
  OpStream stream;
  EXPECT_EQ(stream.offer(2), Answer::kWaits);
  EXPECT_EQ(stream.offer(2), Answer::kDuplicate);
  EXPECT_EQ(stream.offer(1), Answer::kAccepted);
  EXPECT_EQ(stream.offer(1), Answer::kDuplicate);
  stream.start(1);
  EXPECT_EQ(stream.offer(1), Answer::kDuplicate);
  stream.finish(1);
  EXPECT_EQ(stream.offer(1), Answer::kDone);
}

TEST(OpStream, ResultsAreKeptForAWindow) {
  OpStream stream({.max_open = 4, .kept_results = 2}, 10);
  EXPECT_EQ(stream.oldest_kept(), 9u);
  EXPECT_EQ(stream.offer(8), Answer::kTooOld);
  EXPECT_EQ(stream.offer(9), Answer::kDone);
  EXPECT_EQ(stream.next_seq(), 11u);
}

TEST(OpStream, TheWindowIsBoundedAndTheMissingNumberStillGetsIn) {
  OpStream stream({.max_open = 3, .kept_results = 2});
  EXPECT_EQ(stream.offer(2), Answer::kWaits);
  EXPECT_EQ(stream.offer(3), Answer::kWaits);
  EXPECT_EQ(stream.offer(4), Answer::kFull);
  EXPECT_EQ(stream.offer(std::uint64_t{1} << 63), Answer::kFull);
  EXPECT_EQ(stream.offer(1), Answer::kAccepted);
  EXPECT_EQ(stream.open(), 3u);
}

TEST(OpStream, ZeroIsNoNumber) {
  OpStream stream;
  EXPECT_EQ(stream.offer(0), Answer::kInvalid);
}

TEST(OpStream, AQueuedNumberMayBeCancelledAndCountsAsFinished) {
  OpStream stream;
  for (std::uint64_t seq = 1; seq <= 3; ++seq) ASSERT_EQ(stream.offer(seq), Answer::kAccepted);
  stream.start(1);
  EXPECT_TRUE(stream.cancel(2));
  EXPECT_EQ(stream.offer(2), Answer::kDone);
  EXPECT_EQ(stream.finished(), 0u);
  stream.finish(1);
  EXPECT_EQ(stream.finished(), 2u);
  EXPECT_FALSE(stream.cancel(2));
}

TEST(OpStream, ARunningNumberIsNotCancelled) {
  OpStream stream;
  ASSERT_EQ(stream.offer(1), Answer::kAccepted);
  stream.start(1);
  EXPECT_FALSE(stream.cancel(1));
  EXPECT_FALSE(stream.cancel(7));
}

TEST(OpStream, AWaitingNumberThatIsCancelledMayComeAgain) {
  OpStream stream;
  ASSERT_EQ(stream.offer(2), Answer::kWaits);
  EXPECT_TRUE(stream.cancel(2));
  EXPECT_EQ(stream.offer(2), Answer::kWaits);
}

TEST(OpStream, AfterAnEngineCrashTheRunningNumberStartsAgain) {
  OpStream stream;
  ASSERT_EQ(stream.offer(1), Answer::kAccepted);
  stream.start(1);
  stream.requeue(1);
  stream.start(1);
  stream.finish(1);
  EXPECT_EQ(stream.finished(), 1u);
}

TEST(OpStreamDeathTest, ContradictionsOfTheCallerAbort) {
  OpStream stream;
  ASSERT_EQ(stream.offer(1), Answer::kAccepted);
  EXPECT_DEATH(stream.start(2), "only a queued training op can start");
  EXPECT_DEATH(stream.finish(2), "only an accepted");
}

}  // namespace
}  // namespace plexrl::core
