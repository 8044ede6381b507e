// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_flow.h"

#include <gtest/gtest.h>

namespace plexrl::runtime {
namespace {

using Gate = ModelFlow::Gate;

class ModelFlowTest : public ::testing::Test {
 protected:
  ModelFlow flow_{core::OpStream()};
};

TEST_F(ModelFlowTest, TrainingIsFedInOrderAtOnce) {
  flow_.push(OpId{1}, Gate::kNone);
  flow_.push(OpId{2}, Gate::kNone);
  EXPECT_EQ(flow_.next_to_feed(), OpId{1});
  EXPECT_EQ(flow_.next_to_feed(), OpId{2});
  EXPECT_FALSE(flow_.next_to_feed());
}

TEST_F(ModelFlowTest, APublishWaitsForTrainingAndForReadersOfTheOldVersion) {
  flow_.reader_arrived();
  flow_.push(OpId{1}, Gate::kNone);
  flow_.push(OpId{2}, Gate::kPublish);
  EXPECT_EQ(flow_.next_to_feed(), OpId{1});
  EXPECT_FALSE(flow_.next_to_feed());
  EXPECT_FALSE(flow_.replacing());
  flow_.training_ended(OpId{1});
  EXPECT_FALSE(flow_.next_to_feed());
  EXPECT_TRUE(flow_.replacing());
  flow_.reader_left();
  EXPECT_EQ(flow_.next_to_feed(), OpId{2});
  EXPECT_TRUE(flow_.replacing());
  flow_.training_ended(OpId{2});
  EXPECT_FALSE(flow_.replacing());
}

TEST_F(ModelFlowTest, ALoadIsAWall) {
  flow_.push(OpId{1}, Gate::kLoad);
  flow_.push(OpId{2}, Gate::kNone);
  EXPECT_EQ(flow_.next_to_feed(), OpId{1});
  EXPECT_FALSE(flow_.next_to_feed());
  flow_.training_ended(OpId{1});
  EXPECT_EQ(flow_.next_to_feed(), OpId{2});
}

TEST_F(ModelFlowTest, ACancelledPublishLetsReadersInAgain) {
  flow_.reader_arrived();
  flow_.push(OpId{1}, Gate::kPublish);
  EXPECT_FALSE(flow_.next_to_feed());
  EXPECT_TRUE(flow_.replacing());
  flow_.training_cancelled(OpId{1});
  EXPECT_FALSE(flow_.replacing());
}

TEST_F(ModelFlowTest, NothingGoesWhileReplaysRun) {
  flow_.push(OpId{1}, Gate::kNone);
  flow_.begin_recovery();
  flow_.expect_replay(OpId{10});
  flow_.expect_replay(OpId{11});
  flow_.push(OpId{1}, Gate::kNone);
  EXPECT_FALSE(flow_.next_to_feed());
  EXPECT_FALSE(flow_.replay_ended(OpId{10}));
  EXPECT_TRUE(flow_.replay_ended(OpId{11}));
  EXPECT_EQ(flow_.next_to_feed(), OpId{1});
}

}  // namespace
}  // namespace plexrl::runtime
