// SPDX-License-Identifier: Apache-2.0
#include "cli/train/command_environment.h"

#include "unit/cli/train/controller_fixture.h"
#include "unit/cli/train/env_script.h"

namespace plexrl::cli {
namespace {

std::string one_turn() {
  return worker_script(
      "while next; do case $line in *reset*) say '\"observation\":\"21>\"';;\n"
      "*) say '\"reward\":1,\"done\":true';; esac; done");
}

TEST_F(ControllerTest, EpisodesOfACommandAreTrainedOnAndBelongToTheCheckpoint) {
  options_.env_command = one_turn();
  options_.env_workers = 3;
  options_.max_new_tokens = 8;
  options_.prompts = options_.samples = options_.steps = 2;
  options_.eval_prompts = 2;
  options_.checkpoint = path("checkpoint");
  options_.log = path("log");
  FakeService service;
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ((*summary)["held_out"]["greedy"], 1.0);
  const auto lines = records();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["failed_episodes"], 0);
  EXPECT_EQ(lines[0]["reward"], 1.0);

  options_.resume = true;
  TrainOptions other = options_;
  other.env_command += " ";
  EXPECT_NE(run(service, other).error().text().find("another --env-cmd"), std::string::npos);
  other = options_;
  other.env_workers = 2;
  EXPECT_NE(run(service, other).error().text().find("another --env-workers"), std::string::npos);
  other = options_;
  other.max_turns = 2;
  EXPECT_NE(run(service, other).error().text().find("another --max-turns"), std::string::npos);
}

TEST(CommandEnvironment, RefusesWhatACommandDoesItself) {
  TrainOptions options;
  options.env_command = one_turn();
  EXPECT_TRUE(make_environment(options).has_value());
  options.verifier = "true";
  EXPECT_NE(make_environment(options).error().text().find("--verifier"), std::string::npos);
  options.verifier.clear();
  options.sft_steps = 1;
  EXPECT_NE(make_environment(options).error().text().find("--sft-steps"), std::string::npos);
  options.sft_steps = 0;
  options.env_command = "echo '{\"id\":1,\"protocol\":7}'; cat";
  const auto other = make_environment(options);
  EXPECT_EQ(other.error().code(), Code::UNSUPPORTED);
  EXPECT_NE(other.error().text().find("--env-cmd"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::cli
