// SPDX-License-Identifier: Apache-2.0
#include "core/cost_model.h"

#include <gtest/gtest.h>

namespace plexrl::core {
namespace {

constexpr std::int64_t kMs = kMillisecond.ns;

double ms(std::optional<Duration> time) { return static_cast<double>(time.value().ns) * 1e-6; }

TEST(SizedCost, KnowsNothingBeforeTheFirst) { EXPECT_EQ(SizedCost().estimate(10), std::nullopt); }

TEST(SizedCost, IsProportionalAroundASize) {
  SizedCost cost;
  cost.learn(1000, {100 * kMs});
  EXPECT_NEAR(ms(cost.estimate(1000)), 100, 0.1);
  EXPECT_NEAR(ms(cost.estimate(800)), 80, 0.1);
}

TEST(SizedCost, ALargeOneDoesNotTellWhatASmallOneCosts) {
  SizedCost cost;
  cost.learn(10, {20 * kMs});
  cost.learn(100000, {500 * kMs});
  EXPECT_NEAR(ms(cost.estimate(10)), 20, 0.1);
  EXPECT_NEAR(ms(cost.estimate(100000)), 500, 0.1);
  EXPECT_NEAR(ms(cost.estimate(60000)), 300, 0.1) << "from the nearest size";
}

TEST(SizedCost, TwoOutliersAmongFiveChangeNothing) {
  SizedCost cost;
  for (const std::int64_t ms : {10, 9000, 11, 8000, 12}) cost.learn(64, {ms * kMs});
  EXPECT_NEAR(ms(cost.estimate(64)), 12, 0.1);
}

TEST(SizedCost, FollowsALastingChangeWithinThree) {
  SizedCost cost;
  for (int n = 0; n < 20; ++n) cost.learn(64, {10 * kMs});
  for (int n = 0; n < 3; ++n) cost.learn(64, {40 * kMs});
  EXPECT_NEAR(ms(cost.estimate(64)), 40, 0.1);
}

TEST(SizedCost, ExtremesSaturate) {
  SizedCost cost;
  cost.learn(0, {INT64_MAX});
  EXPECT_EQ(cost.estimate(~std::uint64_t{0}), SizedCost::kLongest);
  cost.learn(~std::uint64_t{0}, {-5});
  EXPECT_EQ(cost.estimate(~std::uint64_t{0}), Duration{});
}

TEST(CostModel, ANewTenantIsExpectedToBeLikeTheOthers) {
  CostModel costs;
  EXPECT_EQ(costs.op({1}, OpKind::kGenerate, 5), std::nullopt);
  costs.learn_op({1}, OpKind::kGenerate, 5, {50 * kMs});
  costs.learn_op({2}, OpKind::kGenerate, 5, {90 * kMs});
  costs.learn_op({2}, OpKind::kGenerate, 5, {90 * kMs});
  EXPECT_NEAR(ms(costs.op({1}, OpKind::kGenerate, 5)), 50, 0.1);
  EXPECT_NEAR(ms(costs.op({3}, OpKind::kGenerate, 5)), 90, 0.1);
  EXPECT_EQ(costs.op({1}, OpKind::kLogprobs, 5), std::nullopt) << "another kind";
  costs.forget({1});
  EXPECT_NEAR(ms(costs.op({1}, OpKind::kGenerate, 5)), 90, 0.1);
}

TEST(CostModel, MovesCostByDirectionAndNothingCostsNothing) {
  CostModel costs;
  EXPECT_EQ(costs.move(true, 1 << 30), Duration{});
  costs.learn_move(true, 1 << 30, {100 * kMs});
  costs.learn_move(false, 1 << 30, {300 * kMs});
  EXPECT_NEAR(ms(costs.move(true, 1 << 30)), 100, 0.5);
  EXPECT_NEAR(ms(costs.move(false, 1 << 30)), 300, 0.5);
  EXPECT_EQ(costs.move(true, 0), Duration{});
}

CostModel taught() {
  CostModel costs;
  for (std::uint64_t n = 1; n <= 40; ++n) {
    costs.learn_op({n % 5}, static_cast<OpKind>(1 + n % 6), n * n * n,
                   {static_cast<std::int64_t>(n) * kMs});
    costs.learn_move(n % 2 == 0, n << 20, {static_cast<std::int64_t>(n) * kMs});
  }
  return costs;
}

TEST(CostModel, ContinuesFromASnapshotAlike) {
  CostModel costs = taught();
  ByteWriter out;
  costs.encode(out);
  CostModel again;
  ByteReader in(out.bytes());
  again.decode(in);
  ASSERT_TRUE(in.at_end());
  for (CostModel* each : {&costs, &again}) {
    each->learn_op({1}, OpKind::kGenerate, 7, {3 * kMs});
    each->learn_move(true, 9 << 20, {3 * kMs});
  }
  ByteWriter first, second;
  costs.encode(first);
  again.encode(second);
  EXPECT_EQ(first.bytes(), second.bytes());
  EXPECT_EQ(costs.op({2}, OpKind::kOptimStep, 99), again.op({2}, OpKind::kOptimStep, 99));
}

TEST(CostModel, DamageIsNoticedOrHarmless) {
  ByteWriter out;
  taught().encode(out);
  for (std::size_t at = 0; at < out.bytes().size(); ++at) {
    std::string bad = out.bytes();
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    CostModel costs;
    ByteReader in(bad);
    costs.decode(in);
    (void)costs.op({1}, OpKind::kGenerate, 7);
    ByteReader cut(std::string_view(out.bytes()).substr(0, at));
    CostModel half;
    half.decode(cut);
    EXPECT_FALSE(cut.ok()) << at;
  }
}

}  // namespace
}  // namespace plexrl::core
