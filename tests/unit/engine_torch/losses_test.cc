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

struct CispoCase {
  double ratio, advantage, factor;
  bool clipped;
};
class Cispo : public testing::TestWithParam<CispoCase> {};
INSTANTIATE_TEST_SUITE_P(Branches, Cispo,
                         testing::Values(CispoCase{1.0, 1.0, 1.0, false},
                                         CispoCase{1.5, 1.0, 1.2, true},
                                         CispoCase{0.5, 1.0, 0.8, true},
                                         CispoCase{1.5, -2.0, 1.2, true},
                                         CispoCase{0.5, -2.0, 0.8, true}));
TEST_P(Cispo, WeighsByTheClippedRatioWhateverTheSign) {
  const CispoCase& c = GetParam();
  const double logp = std::log(c.ratio) - 2.5;
  const LossTerm term = loss_term({LossKind::Cispo, 0.8, 1.2}, {logp, c.advantage, -2.5});
  EXPECT_NEAR(term.loss, -c.factor * c.advantage * logp, 1e-12);
  EXPECT_NEAR(term.slope, -c.factor * c.advantage, 1e-12);
  EXPECT_NEAR(term.ratio, c.ratio, 1e-12);
  EXPECT_EQ(term.clipped, c.clipped);
}

TEST(Losses, DroPullsBackToTheSampler) {
  const LossTerm term = loss_term({.kind = LossKind::Dro, .beta = 0.5}, {-1.0, 2.0, -1.4});
  EXPECT_NEAR(term.loss, -(2.0 * -1.0 - 0.25 * 0.16), 1e-12);
  EXPECT_NEAR(term.slope, -2.0 + 0.5 * 0.4, 1e-12);
  EXPECT_NEAR(term.ratio, std::exp(0.4), 1e-12);
  EXPECT_FALSE(term.clipped);
  const LossTerm plain = loss_term({.kind = LossKind::Dro, .beta = 0.0}, {-1.0, 2.0, -1.4});
  const LossTerm supervised = loss_term({LossKind::CrossEntropy}, {-1.0, 2.0, 0});
  EXPECT_EQ(plain.loss, supervised.loss);
  EXPECT_EQ(plain.slope, supervised.slope);
}

// The slope of every loss by differences. The factor of cispo has no derivative: it is held here by
// bounds that are one number.
TEST(Losses, SlopesAgreeWithFiniteDifferences) {
  const double h = 1e-6;
  int checked = 0;
  for (const LossKind kind : wire::EnumValuesLossKind())
    for (const double advantage : {1.5, -0.7})
      for (const double logp : {-1.9, -1.55, -1.3}) {
        LossRule rule{kind, 0.8, 1.2, 0.3};
        if (kind == LossKind::Cispo) rule.clip_low = rule.clip_high = 1.1;
        const auto at = [&](double x) { return loss_term(rule, {x, advantage, -1.6}); };
        const double slope = (at(logp + h).loss - at(logp - h).loss) / (2 * h);
        EXPECT_NEAR(at(logp).slope, slope, 1e-6) << wire::EnumNameLossKind(kind) << " " << logp;
        ++checked;
      }
  EXPECT_EQ(checked, 5 * 2 * 3);
}

TEST(Losses, PositionsWithZeroAdvantageAreSilent) {
  for (const LossKind kind :
       {LossKind::ImportanceSampling, LossKind::Ppo, LossKind::Cispo, LossKind::Dro}) {
    const LossTerm term = loss_term({kind}, {-1000.0, 0.0, 1000.0});
    EXPECT_EQ(term.loss, 0.0);
    EXPECT_EQ(term.slope, 0.0);
    EXPECT_FALSE(term.counts);
  }
}

}  // namespace
}  // namespace plexrl::model
