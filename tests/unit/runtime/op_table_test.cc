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

Waiter waiter(std::uint64_t session, std::uint64_t request) {
  return {SessionId{session}, request, [](const OpOutcome&) {}};
}

TEST_F(OpTableTest, AnOpIsFoundByEachRequestThatWaitsForIt) {
  Op first = training(kModel, 1);
  first.waiters.push_back(waiter(1, 10));
  Op& op = table_.add(std::move(first));
  table_.join(op, waiter(2, 10));
  EXPECT_EQ(table_.find_request(SessionId{1}, 10), &op);
  EXPECT_EQ(table_.find_request(SessionId{2}, 10), &op);
  EXPECT_EQ(table_.find_request(SessionId{1}, 11), nullptr);
  EXPECT_EQ(table_.find_request(SessionId{3}, 10), nullptr);
  EXPECT_EQ(table_.leave(op, SessionId{1}, 10).request_id, 10U);
  EXPECT_EQ(table_.find_request(SessionId{1}, 10), nullptr);
  const auto left = table_.remove(op.id);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].session, SessionId{2});
  EXPECT_EQ(table_.find_request(SessionId{2}, 10), nullptr);
}

TEST_F(OpTableTest, ASessionLeavesAllItsOpsAndNoOthers) {
  Op& alone = table_.add(training(kModel, 1));
  Op& shared = table_.add(training(kModel, 2));
  Op& other = table_.add(training(kModel, 3));
  table_.join(alone, waiter(1, 10));
  table_.join(shared, waiter(1, 11));
  table_.join(shared, waiter(2, 10));
  table_.join(other, waiter(2, 11));
  EXPECT_EQ(table_.leave_all(SessionId{1}), (std::set<OpId>{alone.id, shared.id}));
  EXPECT_TRUE(alone.waiters.empty());
  EXPECT_EQ(shared.waiters.size(), 1U);
  EXPECT_EQ(other.waiters.size(), 1U);
  EXPECT_EQ(table_.find_request(SessionId{1}, 11), nullptr);
  EXPECT_EQ(table_.find_request(SessionId{2}, 10), &shared);
  EXPECT_TRUE(table_.leave_all(SessionId{1}).empty());
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
