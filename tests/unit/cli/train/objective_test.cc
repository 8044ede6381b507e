// SPDX-License-Identifier: Apache-2.0
#include "cli/train/objective.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/train/dynamic_sampling.h"
#include "unit/cli/train/controller_fixture.h"

namespace plexrl::cli {
namespace {

TrainOptions chosen(const char* algorithm) {
  TrainOptions options;
  options.algorithm = algorithm;
  EXPECT_TRUE(choose_objective(options).ok());
  return options;
}

TEST(Objective, IsTheAlgorithmsWhenNothingIsSaid) {
  const TrainOptions grpo = chosen("grpo"), dapo = chosen("dapo"), rloo = chosen("rloo");
  EXPECT_EQ(grpo.loss, "ppo");
  EXPECT_EQ(grpo.clip_high, 1.2);
  EXPECT_EQ(grpo.resample_rounds, 0U);
  EXPECT_EQ(dapo.loss, "ppo");
  EXPECT_EQ(dapo.clip_low, 0.8);
  EXPECT_EQ(dapo.clip_high, 1.28);
  EXPECT_EQ(dapo.resample_rounds, 3U);
  EXPECT_EQ(dapo.length_penalty, 0.0);
  EXPECT_EQ(rloo.loss, "importance_sampling");
  EXPECT_EQ(rloo.clip_high, std::nullopt);
}

TEST(Objective, GivenOptionsStand) {
  TrainOptions options;
  options.algorithm = "dapo";
  options.loss = "importance_sampling";
  options.resample_rounds = 0;
  options.overlong_buffer = 8;
  ASSERT_TRUE(choose_objective(options).ok());
  EXPECT_EQ(loss_request(options).kind, Loss::kImportanceSampling);
  EXPECT_EQ(options.resample_rounds, 0U);
  EXPECT_EQ(options.length_penalty, 1.0);
  options = {};
  options.algorithm = "rloo";
  options.loss = "ppo";
  options.clip_high = 1.5;
  ASSERT_TRUE(choose_objective(options).ok());
  EXPECT_EQ(loss_request(options).kind, Loss::kPpo);
  EXPECT_EQ(loss_request(options).clip_low, 0.8);
  EXPECT_EQ(loss_request(options).clip_high, 1.5);
}

TEST(Objective, EachLossHasBoundsOfItsOwn) {
  TrainOptions cispo, dro;
  cispo.algorithm = "dapo";
  cispo.loss = "cispo";
  ASSERT_TRUE(choose_objective(cispo).ok());
  EXPECT_EQ(loss_request(cispo).kind, Loss::kCispo);
  EXPECT_EQ(loss_request(cispo).clip_low, 0.0);
  EXPECT_EQ(loss_request(cispo).clip_high, 4.0);
  dro.loss = "dro";
  ASSERT_TRUE(choose_objective(dro).ok());
  EXPECT_EQ(loss_request(dro).kind, Loss::kDro);
  EXPECT_EQ(loss_request(dro).beta, 0.01);
  EXPECT_EQ(dro.clip_high, std::nullopt);
  dro.dro_beta = 0.5;
  ASSERT_TRUE(choose_objective(dro).ok());
  EXPECT_EQ(loss_request(dro).beta, 0.5);
}

TEST(Objective, CombinationsThatMeanNothingAreRefusedByName) {
  struct Case {
    const char* text;
    void (*set)(TrainOptions&);
  };
  const Case cases[] = {
      {"--algo 'ppo'", [](TrainOptions& o) { o.algorithm = "ppo"; }},
      {"--loss 'huber'", [](TrainOptions& o) { o.loss = "huber"; }},
      {"does not clip",
       [](TrainOptions& o) {
         o.algorithm = "rloo";
         o.clip_high = 1.3;
       }},
      {"does not clip",
       [](TrainOptions& o) {
         o.loss = "importance_sampling";
         o.clip_low = 0.9;
       }},
      {"does not clip",
       [](TrainOptions& o) {
         o.loss = "dro";
         o.clip_high = 1.3;
       }},
      {"--dro-beta", [](TrainOptions& o) { o.dro_beta = 0.1; }},
      {"must lie between", [](TrainOptions& o) { o.clip_low = 1.1; }},
      {"reinforce++ compares",
       [](TrainOptions& o) {
         o.algorithm = "reinforce++";
         o.resample_rounds = 2;
       }},
      {"--samples 1",
       [](TrainOptions& o) {
         o.algorithm = "dapo";
         o.samples = 1;
       }},
      {"takes nothing off",
       [](TrainOptions& o) {
         o.length_penalty = 0.0;
         o.overlong_buffer = 4;
       }},
  };
  for (const Case& one : cases) {
    TrainOptions options;
    one.set(options);
    const Status status = choose_objective(options);
    EXPECT_EQ(status.code(), Code::INVALID_ARGUMENT) << one.text;
    EXPECT_NE(status.text().find(one.text), std::string::npos) << status.text();
  }
}

TEST(LengthPenalty, GrowsOverTheBuffer) {
  TrainOptions options;
  options.overlong_buffer = 4;
  ASSERT_TRUE(choose_objective(options).ok());
  EXPECT_EQ(length_penalty(options, 20, 16), 0.0);
  EXPECT_EQ(length_penalty(options, 20, 17), 0.25);
  EXPECT_EQ(length_penalty(options, 20, 20), 1.0);
  options.length_penalty = 0.5;
  EXPECT_EQ(length_penalty(options, 20, 18), 0.25);
  options.overlong_buffer = 0;
  EXPECT_EQ(length_penalty(options, 20, 5), 0.125);
  EXPECT_EQ(length_penalty(TrainOptions(), 20, 20), 0.0);
}

TEST(DynamicSampling, ASignalIsADifferenceWithinTheGroup) {
  RolloutBatch batch;
  batch.rewards = {1, 1, 0, 0, 0, 1};
  EXPECT_FALSE(has_signal(batch, 2, 0));
  EXPECT_FALSE(has_signal(batch, 2, 1));
  EXPECT_TRUE(has_signal(batch, 2, 2));
}

TEST_F(ControllerTest, GroupsWithoutASignalAreDrawnAgain) {
  options_.algorithm = "dapo";
  options_.log = path("log");
  FakeService service;
  service.right_percent = 85;  // half of the groups of 4 are all right
  ASSERT_TRUE(run(service).has_value());
  std::size_t request = 0, resampled = 0;
  for (const auto& record : records()) {
    const auto rounds = record["resample_rounds"].get<std::size_t>();
    EXPECT_LE(rounds, 3U);
    std::size_t groups = 0;
    const std::uint64_t version = service.requests[request].version;
    std::set<std::uint64_t> seeds;
    for (std::size_t round = 0; round <= rounds; ++round, ++request) {
      groups += service.requests[request].prompts.size();
      seeds.insert(service.requests[request].seed);
      EXPECT_EQ(service.requests[request].version, version);
    }
    EXPECT_EQ(record["groups"], groups);
    EXPECT_EQ(seeds.size(), rounds + 1);
    const auto dull = record["groups_without_signal"].get<std::size_t>();
    if (rounds < 3) {
      EXPECT_EQ(groups - dull, options_.prompts);
    }
    resampled += groups - options_.prompts;
  }
  EXPECT_EQ(request, service.requests.size());
  EXPECT_GT(resampled, 0U);
}

TEST_F(ControllerTest, TheEntropyIsTheMeanOverThePositionsThatCountInAllOptimizerSteps) {
  options_.steps = 2;
  options_.log = path("log");
  FakeService service;
  service.entropies = {1.0, 2.0, 0.5, 0.25};
  ASSERT_TRUE(run(service).has_value());
  const auto& n = service.positions;
  ASSERT_EQ(n.size(), 4U);
  EXPECT_NE(n[2], n[3]) << "groups without a signal do not fall into minibatches evenly";
  EXPECT_NEAR(records().at(0)["entropy"].get<double>(), (n[0] + 2 * n[1]) / (n[0] + n[1]), 1e-12);
  EXPECT_NEAR(records().at(1)["entropy"].get<double>(), (n[2] / 2 + n[3] / 4) / (n[2] + n[3]),
              1e-12);
}

// They would be computed for a gradient of zero.
TEST_F(ControllerTest, GroupsWithoutASignalAreNotTrainedOn) {
  options_.minibatches = 1;
  options_.log = path("log");
  FakeService service;
  service.right_percent = 85;
  ASSERT_TRUE(run(service).has_value());
  const auto records = this->records();
  ASSERT_EQ(service.policy_rows.size(), records.size());
  std::size_t dull = 0;
  for (std::size_t step = 0; step < records.size(); ++step) {
    const auto without = records[step]["groups_without_signal"].get<std::size_t>();
    EXPECT_EQ(service.policy_rows[step], (options_.prompts - without) * options_.samples);
    dull += without;
  }
  EXPECT_GT(dull, 0U);
}

TEST_F(ControllerTest, ResamplingIsBoundedWhenNothingHasASignal) {
  options_.algorithm = "dapo";
  options_.steps = 1;
  options_.minibatches = 3;
  options_.log = path("log");
  FakeService service;
  service.right_percent = 100;
  ASSERT_TRUE(run(service).has_value());
  EXPECT_EQ(service.requests.size(), 4U);
  EXPECT_EQ(service.weights.step, 3U);
  EXPECT_EQ(service.policy_rows, std::vector<std::size_t>(3, 1)) << "an op needs a datum";
  const auto record = records().at(0);
  EXPECT_EQ(record["groups"], 4 * options_.prompts);
  EXPECT_EQ(record["no_signal_fraction"], 1.0);
  for (const char* name : {"entropy", "ratio_mean", "clip_fraction", "logprob_drop"})
    EXPECT_TRUE(record.at(name).is_null()) << name << ": nothing counted";
  EXPECT_EQ(record["reward"], 1.0);
}

TEST_F(ControllerTest, TheLengthPenaltyIsLearntFromButNotReported) {
  options_.steps = 1;
  options_.log = path("log");
  FakeService plain, penalised;
  plain.right_percent = penalised.right_percent = 50;
  ASSERT_TRUE(run(plain).has_value());
  const auto before = records().at(0);
  options_.overlong_buffer = 7;  // the answers have 7 tokens, the most that there can be
  options_.algorithm = "rloo";
  ASSERT_TRUE(run(penalised).has_value());
  const auto after = records().at(0);
  EXPECT_EQ(before["length_penalty"], 0.0);
  EXPECT_EQ(after["length_penalty"], 1.0);
  EXPECT_EQ(after["reward"], before["reward"]);
  EXPECT_EQ(after["answer_tokens"], 7.0);
  options_.overlong_buffer = 8;
  FakeService refused;
  EXPECT_EQ(run(refused).error().code(), Code::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace plexrl::cli
