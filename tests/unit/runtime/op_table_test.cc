// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_table.h"

#include <gtest/gtest.h>

namespace plexrl::runtime {
namespace {

constexpr ModelId kModel{7};
constexpr ModelId kOther{8};

Op training(ModelId model, std::uint64_t seq) {
  Op op;
  op.model = model;
  op.tenant = TenantId{1};
  op.seq = seq;
  return op;
}

Op sampling(ModelId model, std::uint64_t client, std::uint64_t number) {
  Op op = training(model, 0);
  op.sampling_client = client;
  op.number = number;
  return op;
}

class OpTableTest : public ::testing::Test {
 protected:
  OpTable table_{OpId{100}, 4};
};

TEST_F(OpTableTest, TrainingIsFoundByModelAndNumber) {
  Op& op = table_.add(training(kModel, 3));
  table_.add(training(kOther, 3));
  EXPECT_EQ(table_.find_seq(kModel, 3), &op);
  EXPECT_EQ(table_.find_seq(kModel, 2), nullptr);
  EXPECT_EQ(table_.find_seq(ModelId{9}, 3), nullptr);
  table_.remove(op.id);
  EXPECT_EQ(table_.find_seq(kModel, 3), nullptr);
  EXPECT_NE(table_.find_seq(kOther, 3), nullptr);
}

TEST_F(OpTableTest, AReplayIsNotTheOpThatAClientWaitsFor) {
  Op replay = training(kModel, 3);
  replay.replay = true;
  table_.add(std::move(replay));
  EXPECT_EQ(table_.find_seq(kModel, 3), nullptr);
  Op& op = table_.add(training(kModel, 3));
  EXPECT_EQ(table_.find_seq(kModel, 3), &op);
}

TEST_F(OpTableTest, SamplingIsFoundByClientAndNumber) {
  Op& op = table_.add(sampling(kModel, 5, 1));
  EXPECT_EQ(table_.find_sampling(kModel, 5, 1), &op);
  EXPECT_EQ(table_.find_sampling(kModel, 5, 2), nullptr);
  EXPECT_EQ(table_.find_sampling(kModel, 6, 1), nullptr);
  EXPECT_EQ(table_.find_sampling(kOther, 5, 1), nullptr);
  table_.remove(op.id);
  EXPECT_EQ(table_.find_sampling(kModel, 5, 1), nullptr);
}

TEST_F(OpTableTest, CancelledSamplingIsNotJoined) {
  table_.add(sampling(kModel, 5, 1)).cancelled = true;
  EXPECT_EQ(table_.find_sampling(kModel, 5, 1), nullptr);
  Op& again = table_.add(sampling(kModel, 5, 1));
  EXPECT_EQ(table_.find_sampling(kModel, 5, 1), &again);
}

TEST_F(OpTableTest, SamplingWithoutANumberIsNeverTheSame) {
  table_.add(sampling(kModel, 0, 0));
  table_.add(sampling(kModel, 5, 0));
  EXPECT_EQ(table_.find_sampling(kModel, 0, 0), nullptr);
  EXPECT_EQ(table_.find_sampling(kModel, 5, 0), nullptr);
}

TEST_F(OpTableTest, ATenantHasRoomUpToItsLimit) {
  for (std::uint64_t seq = 1; seq <= 4; ++seq) {
    EXPECT_TRUE(table_.room_for(TenantId{1}).ok());
    table_.add(training(kModel, seq));
  }
  EXPECT_EQ(table_.room_for(TenantId{1}).code(), Code::BUSY);
  EXPECT_TRUE(table_.room_for(TenantId{2}).ok());
  table_.remove(table_.find_seq(kModel, 2)->id);
  EXPECT_TRUE(table_.room_for(TenantId{1}).ok());
}

}  // namespace
}  // namespace plexrl::runtime
