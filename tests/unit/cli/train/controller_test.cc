// SPDX-License-Identifier: Apache-2.0
#include "cli/train/controller.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "cli/train/grpo.h"
#include "unit/cli/train/controller_fixture.h"
#include "unit/cli/train/small_description.h"

namespace plexrl::cli {
namespace {

TEST_F(ControllerTest, RunsToTheEndAndSummarises) {
  FakeService service;
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ((*summary)["steps"], 6);
  EXPECT_EQ((*summary)["train"], "full");
  EXPECT_EQ((*summary)["model_step"], 12);
  EXPECT_EQ((*summary)["learning_rate"], 2e-4);
  EXPECT_EQ((*summary)["state_sha256"], service.sha());
  // publish, generate, 2 x (forward_backward, optim_step) of 1 ms each
  EXPECT_NEAR((*summary)["busy_s"].get<double>(), 6 * 6 * 0.001, 1e-9);
  EXPECT_GT((*summary)["reward_last"].get<double>(), (*summary)["reward_first"].get<double>());
  EXPECT_NE(progress_.find("step 6/6"), std::string::npos);
}

TEST_F(ControllerTest, CheckpointsAreNotPartOfTheSteps) {
  options_.checkpoint = path("checkpoint");
  options_.checkpoint_every = 1;
  FakeService service;
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value());
  EXPECT_NEAR((*summary)["busy_s"].get<double>(), 6 * 6 * 0.001, 1e-9);
}

TEST_F(ControllerTest, TheAlgorithmDecidesOverAdvantagesAndLoss) {
  std::set<std::string> states;
  for (const char* name : kAlgorithmNames) {
    options_.algorithm = name;
    FakeService service;
    const auto summary = run(service);
    ASSERT_TRUE(summary.has_value()) << name << ": " << summary.error().to_string();
    EXPECT_EQ((*summary)["algo"], name);
    ASSERT_FALSE(service.losses.empty());
    EXPECT_EQ(service.losses.back().kind, loss_of(*algorithm_of(name)));
    states.insert(service.sha());
  }
  EXPECT_EQ(states.size(), std::size(kAlgorithmNames)) << "each is another run";
}

TEST_F(ControllerTest, AnAlgorithmOrAClipThatMakesNoSenseIsRefused) {
  FakeService service;
  options_.algorithm = "ppo";
  EXPECT_EQ(run(service).error().code(), Code::INVALID_ARGUMENT);
  options_.algorithm = "grpo";
  options_.clip_low = 1.1;
  EXPECT_EQ(run(service).error().code(), Code::INVALID_ARGUMENT);
}

TEST_F(ControllerTest, SameSeedSameOpsOtherSeedOtherOps) {
  FakeService first, second, third;
  ASSERT_TRUE(run(first).has_value());
  ASSERT_TRUE(run(second).has_value());
  options_.seed = 2;
  ASSERT_TRUE(run(third).has_value());
  EXPECT_EQ(first.sha(), second.sha());
  EXPECT_NE(first.sha(), third.sha());
}

TEST_F(ControllerTest, SamplesTheLatestPublishedVersion) {
  FakeService service;
  ASSERT_TRUE(run(service).has_value());
  ASSERT_EQ(service.requests.size(), 6U);
  for (std::size_t step = 0; step < 6; ++step)
    EXPECT_EQ(service.requests[step].version, 1 + 5 * step);
  EXPECT_EQ(service.requests[0].prompts.size(), 8U);
  EXPECT_EQ(service.requests[0].samples_per_prompt, 4U);
  EXPECT_EQ(service.requests[0].max_new_tokens, 7U);
  EXPECT_NE(service.requests[0].seed, service.requests[1].seed);
}

// A requeued job on the same node: the controller died after any accepted op. With and without a
// checkpoint file, the ops that are applied in the end are the same as without the cut.
class CutTest : public ControllerTest, public testing::WithParamInterface<bool> {};

TEST_P(CutTest, AtEveryTrainingOpGivesTheSameState) {
  options_.sft_steps = 3;
  options_.sft_batch = 4;
  options_.steps = 3;
  FakeService straight;
  ASSERT_TRUE(run(straight).has_value());
  for (std::uint64_t cut = 1; cut < 22; ++cut) {
    TrainOptions options = options_;
    options.checkpoint_every = 2;
    if (GetParam()) options.checkpoint = path(("checkpoint" + std::to_string(cut)).c_str());
    FakeService service;
    service.max_next_seq = cut;
    EXPECT_EQ(run(service, options).error().code(), Code::UNAVAILABLE);
    service.max_next_seq = UINT64_MAX;
    options.resume = GetParam();
    options.requeued = !GetParam();
    const auto summary = run(service, options);
    ASSERT_TRUE(summary.has_value()) << cut << ": " << summary.error().to_string();
    EXPECT_EQ(service.sha(), straight.sha()) << "cut before op " << cut;
    EXPECT_EQ(service.weights.step, straight.weights.step) << "cut before op " << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutJournal, CutTest, testing::Bool());

TEST_F(ControllerTest, ResumeOnAnotherNodeGivesTheSameCurve) {
  FakeService straight;
  const auto expected = run(straight);
  options_.checkpoint = path("checkpoint");
  options_.checkpoint_every = 2;
  FakeService first_node;
  first_node.max_next_seq = 25;  // in the fifth step
  EXPECT_FALSE(run(first_node).has_value());
  options_.resume = true;
  FakeService second_node;
  second_node.model_id = 99;
  const auto resumed = run(second_node);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().to_string();
  EXPECT_EQ(second_node.sha(), straight.sha());
  EXPECT_EQ((*resumed)["reward_first"], (*expected)["reward_first"]);
  EXPECT_EQ((*resumed)["reward_last"], (*expected)["reward_last"]);
}

// Which problems are drawn, how answers are sampled and how they are shuffled into minibatches
// follows from the seed and the step, so a run in two parts is the run in one piece: on the node
// that still has the model, and elsewhere from the checkpoint.
TEST_F(ControllerTest, ThreeStepsAndThreeMoreHaveTheRecordsOfSix) {
  options_.eval_every = 2;
  options_.eval_prompts = 16;
  for (const char* name : kAlgorithmNames) {
    options_.algorithm = name;
    options_.log = path("straight");
    FakeService straight;
    ASSERT_TRUE(run(straight).has_value());
    const auto expected = records();
    ASSERT_EQ(expected.size(), 6U);
    for (const bool elsewhere : {false, true}) {
      TrainOptions options = options_;
      options.log = options_.log = path(elsewhere ? "elsewhere" : "here");
      options.checkpoint = options.log + "." + name;
      options.steps = 3;
      FakeService first, second;
      second.model_id = 99;
      ASSERT_TRUE(run(first, options).has_value());
      options.steps = 6;
      options.resume = true;
      FakeService& after = elsewhere ? second : first;
      const auto summary = run(after, options);
      ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
      EXPECT_EQ(records(), expected) << name << (elsewhere ? " elsewhere" : " on the same node");
      EXPECT_EQ(after.sha(), straight.sha());
    }
  }
}

TEST_F(ControllerTest, OnlyTheNewestModelFileIsKept) {
  options_.checkpoint = path("checkpoint");
  options_.checkpoint_every = 1;
  FakeService service;
  ASSERT_TRUE(run(service).has_value());
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_))
    models += entry.path().extension() == ".safetensors" ? 1 : 0;
  EXPECT_EQ(models, 1);
}

TEST_F(ControllerTest, ResumeWithoutACheckpointStartsAnew) {
  options_.checkpoint = path("none-yet");
  options_.resume = true;
  FakeService service;
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ((*summary)["steps"], 6);
}

TEST_F(ControllerTest, AnExistingCheckpointIsNotOverwritten) {
  options_.checkpoint = path("checkpoint");
  FakeService service, other;
  ASSERT_TRUE(run(service).has_value());
  const auto again = run(other);
  EXPECT_EQ(again.error().code(), Code::EXISTS);
  EXPECT_NE(again.error().text().find("--resume"), std::string::npos);
}

TEST_F(ControllerTest, ACheckpointOfOtherOptionsIsRefused) {
  options_.checkpoint = path("checkpoint");
  FakeService service, other;
  ASSERT_TRUE(run(service).has_value());
  options_.resume = true;
  options_.samples = 5;
  const auto again = run(other);
  EXPECT_EQ(again.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(again.error().text().find("--samples"), std::string::npos);
}

TEST_F(ControllerTest, ADamagedCheckpointIsNamed) {
  options_.checkpoint = path("checkpoint");
  options_.resume = true;
  std::ofstream(options_.checkpoint) << "{\"run\":";
  FakeService service;
  const auto result = run(service);
  EXPECT_EQ(result.error().code(), Code::CORRUPT);
  EXPECT_NE(result.error().text().find(options_.checkpoint), std::string::npos);
}

TEST_F(ControllerTest, AModelThatIsNotTheCheckpointsIsRefused) {
  options_.checkpoint = path("checkpoint");
  FakeService service, other;
  ASSERT_TRUE(run(service).has_value());
  const std::string model = options_.checkpoint + ".6.safetensors";
  ASSERT_TRUE(std::filesystem::exists(model));
  FakeService::Weights strange;
  std::ofstream(model, std::ios::binary).write(reinterpret_cast<char*>(&strange), sizeof strange);
  options_.resume = true;
  EXPECT_EQ(run(other).error().code(), Code::CORRUPT);
}

TEST_F(ControllerTest, AStopWritesACheckpointAndResumeFinishes) {
  FakeService straight, service, fresh;
  ASSERT_TRUE(run(straight).has_value());
  options_.checkpoint = path("checkpoint");
  stop_ = true;
  EXPECT_EQ(run(service).error().code(), Code::CANCELLED);
  stop_ = false;
  options_.resume = true;
  ASSERT_TRUE(run(fresh).has_value());
  EXPECT_EQ(fresh.sha(), straight.sha());
}

TEST_F(ControllerTest, ALostModelIsLoadedFromTheCheckpoint) {
  FakeService straight, service;
  ASSERT_TRUE(run(straight).has_value());
  options_.checkpoint = path("checkpoint");
  options_.checkpoint_every = 2;
  service.max_next_seq = 25;
  EXPECT_FALSE(run(service).has_value());
  service.max_next_seq = UINT64_MAX;
  service.lose_next_op = true;
  options_.resume = true;
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(service.sha(), straight.sha());
}

TEST_F(ControllerTest, ALostModelWithoutACheckpointFails) {
  FakeService service;
  service.lose_next_op = true;
  EXPECT_EQ(run(service).error().code(), Code::LOST);
}

TEST_F(ControllerTest, AModelOfAnotherRunIsRefused) {
  FakeService service;
  service.next_seq = 500;
  options_.requeued = true;
  const auto result = run(service);
  EXPECT_EQ(result.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(result.error().text().find("--model-name"), std::string::npos);
}

TEST_F(ControllerTest, ARunThatLearntNothingSaysSo) {
  for (const double norm : {0.0, 1.0}) {
    FakeService service;
    service.grad_norm = norm;
    ASSERT_TRUE(run(service).has_value());
    EXPECT_EQ(progress_.find("every gradient was 0") != progress_.npos, norm == 0.0) << progress_;
  }
}

// Of a second run in the same job nobody knows whether it is the same one.
TEST_F(ControllerTest, WithoutACheckpointOnlyARequeuedJobGoesOnWithItsModel) {
  FakeService service;
  service.max_next_seq = 9;
  EXPECT_EQ(run(service).error().code(), Code::UNAVAILABLE);
  service.max_next_seq = UINT64_MAX;
  const auto again = run(service);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), Code::EXISTS);
  EXPECT_NE(again.error().text().find("--model-name"), std::string::npos);
  EXPECT_EQ(service.next_seq, 9U);
  options_.requeued = true;
  EXPECT_TRUE(run(service).has_value());
}

TEST_F(ControllerTest, ProblemsThatTheModelCannotReadEndTheRunBeforeItsFirstOp) {
  struct Case {
    const char* line;
    const char* text;
  };
  for (const Case& one : {Case{R"({"prompt":"xyz=","answer":"1"})", "prompt 'xyz='"},
                          Case{R"({"prompt":"1=","answer":"1;2"})", "--stop"}}) {
    std::ofstream(path("problems")) << problems(40) << one.line << "\n";
    options_.environment = "jsonl:" + path("problems");
    FakeService service;
    const auto result = run(service);
    ASSERT_FALSE(result.has_value()) << one.line;
    EXPECT_EQ(result.error().code(), Code::INVALID_ARGUMENT);
    EXPECT_NE(result.error().text().find(one.text), std::string::npos) << result.error().text();
    EXPECT_EQ(service.next_seq, 1U);
  }
}

TEST_F(ControllerTest, AModelWithATokenizerJsonIsAskedInItsTokens) {
  std::ofstream(path("problems")) << problems(40)
                                  << R"({"prompt":"10=","answer":"\u00e9\u00e9\u00e9"})";
  options_.environment = "jsonl:" + path("problems");
  options_.sft_steps = 1;
  options_.steps = 1;
  FakeService service;
  service.tokenizer = small_description().dump();
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  const GenerateRequest& request = service.requests.at(0);
  EXPECT_EQ(request.stop_tokens, (Tokens{kSmallEnd, kSmallOtherEnd}));
  EXPECT_EQ(request.max_new_tokens, 7U);  // two bytes for each of three characters, and the end
  for (const Tokens& prompt : request.prompts) {
    EXPECT_EQ(prompt.front(), kSmallTen);
    EXPECT_EQ(prompt.back(), '=');
  }
}

TEST_F(ControllerTest, AChatIsAskedByTheTemplateAndEndsWithItsToken) {
  std::ofstream(path("problems")) << problems(40);
  options_.environment = "jsonl:" + path("problems");
  options_.chat = true;
  options_.system = "s";
  options_.checkpoint = path("checkpoint");
  options_.steps = 1;
  options_.max_new_tokens = 4;
  FakeService service;
  auto description = small_description();
  description["chat_template"] =
      "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ '<|im_end|>' }}{% endfor %}";
  service.tokenizer = description.dump();
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  const std::string prompt =
      (*make_tokenizer(service.tokenizer))->decode(service.requests.at(0).prompts.at(0));
  EXPECT_TRUE(prompt.starts_with("system:s<|im_end|>user:10")) << prompt;
  EXPECT_TRUE(prompt.ends_with("=<|im_end|>")) << prompt;
  EXPECT_EQ(service.requests[0].stop_tokens, (Tokens{kSmallEnd, kSmallOtherEnd}));

  options_.resume = true;
  TrainOptions other = options_;
  other.system = "t";
  EXPECT_NE(run(service, other).error().text().find("another --system"), std::string::npos);
  other = options_;
  other.stop_text = "x";
  FakeService elsewhere;
  elsewhere.tokenizer = service.tokenizer;
  EXPECT_NE(run(elsewhere, other).error().text().find("another --stop"), std::string::npos);
  other = options_;
  other.chat = false;
  EXPECT_NE(run(elsewhere, other).error().text().find("another --chat"), std::string::npos);
}

TEST_F(ControllerTest, MessagesAreAskedByTheTemplateWithoutChat) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += R"({"messages":[{"role":"tool","content":")" + std::to_string(i) +
            R"("}],"answer":"1"})" + "\n";
  std::ofstream(path("problems")) << text;
  options_.environment = "jsonl:" + path("problems");
  options_.steps = 1;
  FakeService service;
  auto description = small_description();
  service.tokenizer = description.dump();
  EXPECT_NE(run(service).error().text().find("no chat template"), std::string::npos);
  description["chat_template"] =
      "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ '<|im_end|>' }}{% endfor %}";
  service.tokenizer = description.dump();
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  const std::string prompt =
      (*make_tokenizer(service.tokenizer))->decode(service.requests.at(0).prompts.at(0));
  EXPECT_TRUE(prompt.starts_with("tool:")) << prompt;
}

TEST_F(ControllerTest, WarmStartEndsAtItsTarget) {
  options_.sft_steps = 500;
  options_.sft_batch = 2;
  options_.sft_target = 0.6;
  options_.eval_prompts = 64;
  options_.steps = 0;
  FakeService service;
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value());
  const int steps = (*summary)["sft_steps"].get<int>();
  EXPECT_EQ(steps % 25, 0);
  EXPECT_LT(steps, 100);
  EXPECT_GE((*summary)["held_out"]["sampled"].get<double>(), 0.6);
}

TEST_F(ControllerTest, SimulatedToolsAreLabelled) {
  options_.steps = 1;
  options_.tool_latency_s = 0.01;
  options_.log = path("log");
  FakeService service;
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ((*summary)["tool_simulated"], true);
  EXPECT_GE((*summary)["tool_s"].get<double>(), 0.01);
  EXPECT_NE(progress_.find("(simulated)"), std::string::npos);
  std::ifstream log(options_.log);
  std::string line;
  ASSERT_TRUE(std::getline(log, line));
  const auto record = nlohmann::json::parse(line);
  EXPECT_EQ(record["phase"], "grpo");
  EXPECT_EQ(record["tool_simulated"], true);
  EXPECT_NEAR(record["busy_s"].get<double>(), 0.006, 1e-9);
}

TEST_F(ControllerTest, WarnsWhenThePolicyMovesTooFast) {
  options_.steps = 1;
  FakeService service;
  service.logprob_drop = 0.35;
  ASSERT_TRUE(run(service).has_value());
  EXPECT_NE(progress_.find("WARNING: log-probability drop 0.35"), std::string::npos);
}

TEST_F(ControllerTest, AJobThatMayNotTrainIsToldSo) {
  FakeService service;
  service.train_mode = "none";
  const auto result = run(service);
  EXPECT_EQ(result.error().code(), Code::PERMISSION);
  EXPECT_NE(result.error().text().find("--plexrl-train"), std::string::npos);
}

TEST_F(ControllerTest, AProblemThatTheModelCannotReadIsFoundBeforeTheFirstStep) {
  std::ofstream file(path("problems"));
  for (int i = 10; i < 40; ++i)
    file << R"({"prompt":")" << i << R"(=","answer":"1"})"
         << "\n";
  file << R"({"prompt":"12 =","answer":"1"})"
       << "\n";
  file.close();
  options_.environment = "jsonl:" + path("problems");
  FakeService service;
  const auto result = run(service);
  ASSERT_EQ(result.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(result.error().text().find("'12 ='"), std::string::npos) << result.error().text();
  EXPECT_TRUE(service.requests.empty());
  EXPECT_EQ(service.weights.step, 0U);
}

TEST_F(ControllerTest, LoraHasItsOwnLearningRate) {
  options_.steps = 1;
  FakeService service;
  service.train_mode = "lora";
  EXPECT_EQ((*run(service))["learning_rate"], 5e-4);
}

}  // namespace
}  // namespace plexrl::cli
