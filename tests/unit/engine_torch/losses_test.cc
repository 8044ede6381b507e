// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/losses.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plexrl::model {
namespace {

using wire::LossKind;

TEST(Losses, CrossEntropyWithSignedWeights) {
  const LossTerm term = loss_term({LossKind::CrossEntropy}, {-2.0, -0.5, 0});
  EXPECT_DOUBLE_EQ(term.loss, -1.0);
  EXPECT_DOUBLE_EQ(term.slope, 0.5);
  EXPECT_TRUE(term.counts);
  EXPECT_FALSE(loss_term({LossKind::CrossEntropy}, {-2.0, 0.0, 0}).counts);
}

TEST(Losses, ImportanceSampling) {
  const LossTerm term = loss_term({LossKind::ImportanceSampling}, {-1.0, 2.0, -1.5});
  EXPECT_DOUBLE_EQ(term.ratio, std::exp(0.5));
  EXPECT_DOUBLE_EQ(term.loss, -2 * std::exp(0.5));
  EXPECT_DOUBLE_EQ(term.slope, -2 * std::exp(0.5));
}

struct PpoCase {
  double ratio, advantage, loss;
  bool clipped;
};
class Ppo : public testing::TestWithParam<PpoCase> {};
INSTANTIATE_TEST_SUITE_P(Branches, Ppo,
                         testing::Values(PpoCase{1.0, 1.0, -1.0, false},  // inside
                                         PpoCase{1.5, 1.0, -1.2, true},   // gain is capped
                                         PpoCase{0.5, 1.0, -0.5, false},  // loss is not
                                         PpoCase{1.5, -1.0, 1.5, false},
                                         PpoCase{0.5, -1.0, 0.8, true}));
TEST_P(Ppo, TakesTheSmallerBranch) {
  const PpoCase& c = GetParam();
  const LossTerm term = loss_term({LossKind::Ppo, 0.8, 1.2}, {std::log(c.ratio), c.advantage, 0.0});
  EXPECT_NEAR(term.loss, c.loss, 1e-12);
  EXPECT_EQ(term.clipped, c.clipped);
  EXPECT_NEAR(term.slope, c.clipped ? 0.0 : c.loss, 1e-12);
}

TEST(Losses, PromptPositionsWithZeroAdvantageAreSilent) {
  const LossTerm term = loss_term({LossKind::ImportanceSampling}, {-1000.0, 0.0, 1000.0});
  EXPECT_EQ(term.loss, 0.0);
  EXPECT_EQ(term.slope, 0.0);
  EXPECT_FALSE(term.counts);
}

}  // namespace
}  // namespace plexrl::model
