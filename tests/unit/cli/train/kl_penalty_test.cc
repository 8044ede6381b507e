// SPDX-License-Identifier: Apache-2.0
#include "cli/train/kl_penalty.h"

#include "cli/train/grpo.h"
#include "unit/cli/train/controller_fixture.h"

namespace plexrl::cli {
namespace {

// Two prompts of two samples each; answers of one and two tokens. FakeService's base gives token t
// the log-probability -t / 10.
RolloutBatch batch() {
  RolloutBatch result;
  result.prompts = {{1, 2}, {3}};
  result.sequences = {{{4}, {-0.5F}, true},
                      {{5, 6}, {-0.5F, -0.5F}, true},
                      {{7}, {-0.2F}, true},
                      {{8, 9}, {-1.0F, -1.0F}, false}};
  result.rewards = {0, 0, 0, 0};
  return result;
}

TEST(KlPenalty, IsTheDistanceOfATokenFromTheMean) {
  FakeService service;
  service.train_mode = "lora";
  OpMeter meter(system_clock());
  const auto penalty = KlPenalty::measure(service, meter, batch(), 2, 3, 0.5);
  ASSERT_TRUE(penalty.has_value()) << penalty.error().to_string();
  EXPECT_EQ(service.reference_rows, (std::vector<std::size_t>{1, 1, 2}));
  // q - b: -0.1 | 0, 0.1 | 0.5 | -0.2, -0.1
  EXPECT_NEAR(penalty->mean(), 0.2 / 6, 1e-6);
  Datum datum = ppo_datum({1, 2}, batch().sequences[1], 2.0F);
  penalty->add_to(datum, 1, 0.1);
  ASSERT_EQ(datum.advantages.size(), 3U);
  EXPECT_EQ(datum.advantages[0], 0.0F);
  EXPECT_NEAR(datum.advantages[1], 2.0 + 0.1 * 0.5 * (0.2 / 6 - 0.0), 1e-6);
  EXPECT_NEAR(datum.advantages[2], 2.0 + 0.1 * 0.5 * (0.2 / 6 - 0.1), 1e-6);
}

TEST(KlPenalty, WhatAnEnvironmentSaidCountsNowhere) {
  FakeService service;
  service.train_mode = "lora";
  OpMeter meter(system_clock());
  RolloutBatch rows = batch();
  rows.sequences[1].own = {true, false};
  const auto penalty = KlPenalty::measure(service, meter, rows, 2, 1, 0.5);
  ASSERT_TRUE(penalty.has_value()) << penalty.error().to_string();
  EXPECT_NEAR(penalty->mean(), 0.1 / 5, 1e-6);
  Datum datum = ppo_datum({1, 2}, rows.sequences[1], 2.0F);
  penalty->add_to(datum, 1, 0.1);
  EXPECT_NEAR(datum.advantages[1], 2.0 + 0.1 * 0.5 * 0.1 / 5, 1e-6);
  EXPECT_EQ(datum.advantages[2], 0.0F);
}

TEST(KlPenalty, WithMorePartsThanRowsAsksForEachRowOnce) {
  FakeService service;
  service.train_mode = "lora";
  OpMeter meter(system_clock());
  ASSERT_TRUE(KlPenalty::measure(service, meter, batch(), 2, 16, 0.5).has_value());
  EXPECT_EQ(service.reference_rows, (std::vector<std::size_t>{1, 1, 1, 1}));
}

TEST_F(ControllerTest, TheKlPenaltyChangesWhatIsLearntAndIsRecorded) {
  options_.log = path("log");
  FakeService without, with;
  without.train_mode = with.train_mode = "lora";
  ASSERT_TRUE(run(without).has_value());
  for (const auto& record : records()) EXPECT_FALSE(record.contains("kl"));
  EXPECT_TRUE(without.reference_rows.empty());
  options_.kl_coefficient = 0.1;
  const auto summary = run(with);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ((*summary)["kl_coef"], 0.1);
  EXPECT_EQ(with.reference_rows.size(), 6U * options_.minibatches);
  for (const auto& record : records()) EXPECT_TRUE(record.contains("kl"));
  EXPECT_NE(with.sha(), without.sha());
}

}  // namespace
}  // namespace plexrl::cli
