// SPDX-License-Identifier: Apache-2.0
#include "cli/train/grpo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/train/sft.h"
#include "cli/train/sort_environment.h"

namespace plexrl::cli {
namespace {

TEST(Advantages, AreNormalisedWithinTheGroup) {
  const std::vector<double> rewards = {1, 0, 0, 0, 1, 1, 0, 0};
  const auto advantages = advantages_of(Algorithm::kGrpo, rewards, 4);
  // group 1: mean 1/4, population std sqrt(3)/4; group 2: mean 1/2, std 1/2
  EXPECT_NEAR(advantages[0], 0.75 / (0.4330127 + 1e-4), 1e-6);
  EXPECT_NEAR(advantages[1], -0.25 / (0.4330127 + 1e-4), 1e-6);
  EXPECT_NEAR(advantages[4], 0.5 / 0.5001, 1e-9);
  EXPECT_NEAR(advantages[7], -0.5 / 0.5001, 1e-9);
}

TEST(Advantages, AreZeroWhenAllAreEqual) {
  for (const double advantage : advantages_of(Algorithm::kGrpo, std::vector<double>{1, 1, 1, 1}, 4))
    EXPECT_EQ(advantage, 0.0);
}

TEST(Advantages, RlooSubtractsTheMeanOfTheOthers) {
  const std::vector<double> rewards = {1, 0, 0, 0, 1, 1, 0, 0.5};
  const auto advantages = advantages_of(Algorithm::kRloo, rewards, 4);
  EXPECT_NEAR(advantages[0], 1.0, 1e-12);
  EXPECT_NEAR(advantages[1], -1.0 / 3, 1e-12);
  EXPECT_NEAR(advantages[4], 1 - 1.5 / 3, 1e-12);
  EXPECT_NEAR(advantages[7], 0.5 - 2.0 / 3, 1e-12);
  EXPECT_EQ(advantages_of(Algorithm::kRloo, rewards, 1), std::vector<double>(8, 0.0));
}

TEST(Advantages, ReinforcePlusPlusNormalisesOverAllSamples) {
  const std::vector<double> rewards = {1, 1, 1, 0};  // mean 3/4, population std sqrt(3)/4
  for (const std::uint32_t group : {1U, 2U, 4U}) {
    const auto advantages = advantages_of(Algorithm::kReinforcePlusPlus, rewards, group);
    EXPECT_NEAR(advantages[0], 0.25 / (0.4330127 + 1e-4), 1e-6);
    EXPECT_NEAR(advantages[3], -0.75 / (0.4330127 + 1e-4), 1e-6);
  }
}

TEST(Algorithms, HaveNamesAndALoss) {
  EXPECT_EQ(algorithm_of("reinforce++"), Algorithm::kReinforcePlusPlus);
  EXPECT_EQ(algorithm_of("ppo"), std::nullopt);
  EXPECT_EQ(loss_of(Algorithm::kRloo), Loss::kImportanceSampling);
  EXPECT_EQ(loss_of(Algorithm::kGrpo), Loss::kPpo);
}

TEST(PpoDatum, ShiftsAndMarksAnswerPositionsOnly) {
  const Datum datum = ppo_datum({4, 2, 12}, {{2, 4, 13}, {-0.1F, -0.2F, -0.3F}, true}, 0.5F);
  EXPECT_EQ(datum.tokens, (Tokens{4, 2, 12, 2, 4}));
  EXPECT_EQ(datum.targets, (Tokens{2, 12, 2, 4, 13}));
  EXPECT_EQ(datum.advantages, (std::vector<float>{0, 0, 0.5F, 0.5F, 0.5F}));
  EXPECT_EQ(datum.logprobs, (std::vector<float>{0, 0, -0.1F, -0.2F, -0.3F}));
}

TEST(Minibatches, PartitionTheRowsTheSameWayEachTime) {
  const auto parts = minibatches(10, 3, 1, 5);
  ASSERT_EQ(parts.size(), 3U);
  std::vector<std::uint32_t> all;
  for (const auto& part : parts) {
    EXPECT_GE(part.size(), 3U);
    EXPECT_LE(part.size(), 4U);
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_FALSE(std::is_sorted(all.begin(), all.end()));
  std::sort(all.begin(), all.end());
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(all[i], i);
  EXPECT_EQ(parts, minibatches(10, 3, 1, 5));
  EXPECT_NE(parts, minibatches(10, 3, 1, 6));
  EXPECT_NE(parts, minibatches(10, 3, 2, 5));
}

TEST(WarmUp, IsLinearThenFlat) {
  EXPECT_DOUBLE_EQ(warmed_up(1.0, 0, 4), 0.25);
  EXPECT_DOUBLE_EQ(warmed_up(1.0, 2, 4), 0.75);
  EXPECT_DOUBLE_EQ(warmed_up(1.0, 3, 4), 1.0);
  EXPECT_DOUBLE_EQ(warmed_up(1.0, 100, 4), 1.0);
  EXPECT_DOUBLE_EQ(warmed_up(1.0, 0, 0), 1.0);
}

TEST(Random, SameKeySameNumbers) {
  Random a(1, Stream::kProblems, 3), b(1, Stream::kProblems, 3), c(1, Stream::kProblems, 4);
  Random d(1, Stream::kSftProblems, 3);
  const auto value = a.next();
  EXPECT_EQ(value, b.next());
  EXPECT_NE(value, c.next());
  EXPECT_NE(value, d.next());
}

TEST(Random, BelowIsUniform) {
  Random random(1, Stream::kProblems, 0);
  int counts[10] = {};
  for (int i = 0; i < 100'000; ++i) ++counts[random.below(10)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

TEST(Random, LogNormalHasItsMeanAndDeviation) {
  Random random(1, Stream::kToolLatency, 0);
  constexpr int kCount = 200'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.log_normal(10.0, 5.0);
    ASSERT_GT(value, 0.0);
    sum += value;
    squares += value * value;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 10.0, 0.1);
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean), 5.0, 0.15);
  EXPECT_EQ(random.log_normal(0.25, 0.0), 0.25);
}

TEST(Sft, WeightsAreTheMeanOverAnswerTokens) {
  const auto tokenizer =
      CharTokenizer::parse(R"({"type":"char","alphabet":"0123456789+=>;ab?","vocab_size":32})");
  SortEnvironment environment;
  const auto prompt_of = [&](const Problem& problem) {
    return tokenizer->encode_prompt(problem.prompt);
  };
  const auto data =
      sft_batch(environment, *tokenizer, prompt_of, tokenizer->encode(";")->front(), 8, 1, 0);
  ASSERT_TRUE(data.has_value());
  double sum = 0;
  for (const Datum& datum : *data) {
    EXPECT_EQ(datum.tokens.size(), 13U);  // 7 + 7 - 1
    EXPECT_EQ(datum.weights[5], 0.0F);
    EXPECT_GT(datum.weights[6], 0.0F);
    for (const float weight : datum.weights) sum += weight;
  }
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

}  // namespace
}  // namespace plexrl::cli
