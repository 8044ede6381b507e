// SPDX-License-Identifier: Apache-2.0
#include "cli/train/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/train/add_environment.h"
#include "cli/train/jsonl_environment.h"
#include "cli/train/sort_environment.h"

namespace plexrl::cli {
namespace {

TEST(Sort, ProblemsAreWellFormed) {
  SortEnvironment environment;
  ProblemSource source{Random(1, Stream::kProblems, 0)};
  for (int i = 0; i < 200; ++i) {
    const Problem problem = environment.training_problem(source);
    ASSERT_EQ(problem.prompt.size(), 7U);
    EXPECT_EQ(problem.prompt.back(), '>');
    EXPECT_TRUE(std::is_sorted(problem.answer.begin(), problem.answer.end()));
    std::string digits = problem.prompt.substr(0, 6);
    std::sort(digits.begin(), digits.end());
    EXPECT_EQ(digits, problem.answer);
  }
}

TEST(Sort, NoHeldOutAnswerIsSeenInTraining) {
  SortEnvironment environment;
  ProblemSource source{Random(1, Stream::kProblems, 0)};
  std::set<std::string> training, held_out;
  for (int i = 0; i < 5000; ++i) {
    training.insert(environment.training_problem(source).answer);
    held_out.insert(environment.held_out_problem(source.random).answer);
  }
  for (const auto& answer : held_out) EXPECT_FALSE(training.contains(answer)) << answer;
}

TEST(Sort, OneMultisetInTenIsHeldOut) {
  int held_out = 0, all = 0;
  for (int number = 0; number < 1'000'000; ++number) {
    std::string digits = std::to_string(number);
    digits.insert(0, 6 - digits.size(), '0');
    if (!std::is_sorted(digits.begin(), digits.end())) continue;
    ++all;
    held_out += SortEnvironment::held_out({digits + ">", digits}) ? 1 : 0;
  }
  EXPECT_EQ(all, 5005);
  EXPECT_NEAR(held_out, 500, 75);
}

TEST(Add, AnswerIsTheSumLowestDigitFirst) {
  EXPECT_EQ(AddEnvironment::problem(37, 58).prompt, "37+58=");
  EXPECT_EQ(AddEnvironment::problem(37, 58).answer, "590");
  EXPECT_EQ(AddEnvironment::problem(3, 4).prompt, "03+04=");
  EXPECT_EQ(AddEnvironment::problem(99, 99).answer, "891");
}

TEST(Add, OnePairInTenIsHeldOutAndEveryPairOfLastDigitsIsTrained) {
  int held_out = 0;
  std::set<std::uint32_t> trained_last_digits;
  for (std::uint32_t a = 0; a < 100; ++a)
    for (std::uint32_t b = 0; b < 100; ++b) {
      EXPECT_EQ(AddEnvironment::held_out(a, b), AddEnvironment::held_out(b, a));
      if (AddEnvironment::held_out(a, b))
        ++held_out;
      else
        trained_last_digits.insert(a % 10 * 10 + b % 10);
    }
  EXPECT_NEAR(held_out, 1000, 150);
  EXPECT_EQ(trained_last_digits.size(), 100U);
}

TEST(Rewards, NeedTheWholeAnswerAndItsEnd) {
  const Problem problem{"21>", "12"};
  EXPECT_EQ(exact_match({&problem, "12", true}), 1.0);
  EXPECT_EQ(exact_match({&problem, "12", false}), 0.0);
  EXPECT_EQ(exact_match({&problem, "21", true}), 0.0);
  EXPECT_EQ(exact_match({&problem, "", true}), 0.0);
}

TEST(MakeEnvironment, NamesWhatItTakes) {
  TrainOptions options;
  options.environment = "chess";
  const auto result = make_environment(options);
  EXPECT_EQ(result.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(result.error().text().find("jsonl:FILE"), std::string::npos);
}

TEST(MakeEnvironment, AVerifierNeedsJsonl) {
  TrainOptions options;
  options.verifier = "true";
  EXPECT_EQ(make_environment(options).error().code(), Code::INVALID_ARGUMENT);
}

TEST(MakeEnvironment, AStopOfItsOwnNeedsJsonl) {
  for (const char* name : {"sort", "add", "countdown"}) {
    TrainOptions options;
    options.environment = name;
    EXPECT_TRUE(make_environment(options).has_value());
    options.stop_text = "ab";
    const auto result = make_environment(options);
    ASSERT_FALSE(result.has_value()) << name;
    EXPECT_NE(result.error().text().find("--stop"), std::string::npos);
  }
}

class JsonlTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "plexrl-jsonl-XXXXXX").string();
    const int fd = mkstemp(name.data());
    ASSERT_GE(fd, 0);
    ::close(fd);
    path_ = name;
    options_.environment = "jsonl:" + path_;
  }
  void TearDown() override { std::filesystem::remove(path_); }
  Result<std::unique_ptr<Environment>> open(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return make_environment(options_);
  }
  static std::string many(int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += R"({"prompt":")" + std::to_string(i) + R"(=","answer":")" + std::to_string(i * 2) +
              "\"}\n";
    return text;
  }

  std::string path_;
  TrainOptions options_;
};

TEST_F(JsonlTest, SplitsByPromptWithoutLeakage) {
  const auto environment = open(many(1000) + many(1000));
  ASSERT_TRUE(environment.has_value()) << environment.error().to_string();
  ProblemSource source{Random(1, Stream::kProblems, 0)};
  std::set<std::string> training, held_out;
  for (int i = 0; i < 5000; ++i) {
    training.insert((*environment)->training_problem(source).prompt);
    held_out.insert((*environment)->held_out_problem(source.random).prompt);
  }
  EXPECT_NEAR(static_cast<double>(held_out.size()), 100.0, 40.0);
  for (const auto& prompt : held_out) EXPECT_FALSE(training.contains(prompt)) << prompt;
  EXPECT_EQ((*environment)->max_answer_chars(), 5U);
}

TEST_F(JsonlTest, EveryPassHasAllTrainingProblemsOnceInAnOrderOfItsOwn) {
  const auto environment = open(many(50));
  ASSERT_TRUE(environment.has_value()) << environment.error().to_string();
  ProblemSource source{Random(1, Stream::kProblems, 0)};
  std::vector<std::string> all;
  for (int i = 0; i < 150; ++i) all.push_back((*environment)->training_problem(source).prompt);
  const std::size_t count = std::set<std::string>(all.begin(), all.end()).size();
  ASSERT_GT(count, 30U);
  std::set<std::vector<std::string>> passes;
  for (std::size_t first = 0; first + count <= all.size(); first += count) {
    const std::vector<std::string> pass(all.begin() + static_cast<std::ptrdiff_t>(first),
                                        all.begin() + static_cast<std::ptrdiff_t>(first + count));
    EXPECT_EQ(std::set<std::string>(pass.begin(), pass.end()).size(), count) << first;
    passes.insert(pass);
  }
  EXPECT_EQ(passes.size(), 150 / count);
}

// So that a run that goes on in its middle is the run in one piece.
TEST_F(JsonlTest, AProblemFollowsFromSeedOrderAndPosition) {
  const auto taken = [&](Stream order, std::uint64_t first, int count) {
    const auto environment = open(many(50));
    ProblemSource source{Random(9, Stream::kProblems, first), order, first};
    std::vector<std::string> prompts;
    for (int i = 0; i < count; ++i)
      prompts.push_back((*environment)->training_problem(source).prompt);
    return prompts;
  };
  const auto straight = taken(Stream::kProblemOrder, 0, 120);
  const auto later = taken(Stream::kProblemOrder, 70, 50);
  EXPECT_EQ(std::vector<std::string>(straight.begin() + 70, straight.end()), later);
  EXPECT_NE(taken(Stream::kSftOrder, 0, 120), straight);
  options_.seed = 2;
  EXPECT_NE(taken(Stream::kProblemOrder, 0, 120), straight);
}

TEST_F(JsonlTest, ErrorsNameFileAndLine) {
  const auto result = open(many(3) + "\nnot json\n");
  EXPECT_EQ(result.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(result.error().text().find(path_ + ":5"), std::string::npos);
}

TEST_F(JsonlTest, RefusesWhatIsNotAProblem) {
  for (const char* line :
       {"[]", "\"x\"", R"({"answer":"1"})", R"({"prompt":"1="})", R"({"prompt":1,"answer":"1"})",
        R"({"prompt":"","answer":"1"})", R"({"prompt":"1=","answer":["1"]})",
        "{\"prompt\":\"\xff\",\"answer\":\"1\"}", "{"}) {
    EXPECT_EQ(open(line).error().code(), Code::INVALID_ARGUMENT) << line;
  }
}

TEST_F(JsonlTest, DeepNestingIsAnErrorAndNotACrash) {
  const auto result = open(std::string(900'000, '['));
  EXPECT_EQ(result.error().code(), Code::INVALID_ARGUMENT);
}

TEST_F(JsonlTest, LongLinesAreRefused) {
  EXPECT_EQ(open(std::string(2 << 20, 'x')).error().code(), Code::TOO_LARGE);
}

TEST_F(JsonlTest, EmptyAndMissingFiles) {
  EXPECT_EQ(open("").error().code(), Code::INVALID_ARGUMENT);
  options_.environment = "jsonl:/nonexistent/file";
  EXPECT_EQ(make_environment(options_).error().code(), Code::NOT_FOUND);
}

TEST_F(JsonlTest, AnswersDoNotContainTheStopThatIsGiven) {
  options_.stop_text = "<end>";
  EXPECT_TRUE(open(many(100)).has_value());
  const auto result = open(many(100) + R"({"prompt":"1=","answer":"1<end>2"})");
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().text().find("--stop"), std::string::npos);
}

TEST_F(JsonlTest, AVerifierThatIsNotThereIsRefusedAtTheStart) {
  for (const char* command : {"/nonexistent/verify", "no-such-command-at-all --strict"}) {
    options_.verifier = command;
    const auto result = open(many(100));
    ASSERT_FALSE(result.has_value()) << command;
    EXPECT_EQ(result.error().code(), Code::NOT_FOUND);
    EXPECT_NE(result.error().text().find("--verifier"), std::string::npos);
  }
  // What only a shell can tell is left to it.
  for (const char* command : {"if true; then exit 0; fi", "test 1 = 1",
                              "A=1 no-such-command-at-all", "(exit 1)", "\"$HOME/verify\""}) {
    options_.verifier = command;
    EXPECT_TRUE(open(many(100)).has_value()) << command;
  }
}

TEST_F(JsonlTest, MessagesTakeThePlaceOfAPrompt) {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += R"({"messages":[{"role":"system","content":"add"},{"role":"user","content":")" +
            std::to_string(i % 100) + R"("}],"answer":"1"})" + "\n";
  const auto environment = open(text);
  ASSERT_TRUE(environment.has_value()) << environment.error().to_string();
  EXPECT_TRUE((*environment)->has_messages());
  EXPECT_FALSE(open(many(100)).value()->has_messages());
  ProblemSource source{Random(1, Stream::kProblems, 0)};
  std::set<std::string> training;
  for (int i = 0; i < 2000; ++i) {
    const Problem problem = (*environment)->training_problem(source);
    ASSERT_EQ(problem.messages.size(), 2U);
    EXPECT_EQ(problem.messages[0].role, "system");
    EXPECT_EQ(problem.messages[1].content, problem.prompt);
    training.insert(problem.prompt);
  }
  EXPECT_LT(training.size(), 100U) << "equal messages are on one side";
}

TEST_F(JsonlTest, RefusesWhatAreNotMessages) {
  for (const char* line :
       {R"({"messages":[],"answer":"1"})", R"({"messages":"hi","answer":"1"})",
        R"({"messages":[1],"answer":"1"})", R"({"messages":[{"role":"user"}],"answer":"1"})",
        R"({"messages":[{"role":"user","content":["x"]}],"answer":"1"})",
        R"({"messages":[{"role":"user","content":"x"}],"prompt":"x","answer":"1"})"}) {
    EXPECT_EQ(open(line).error().code(), Code::INVALID_ARGUMENT) << line;
  }
}

TEST_F(JsonlTest, AVerifierNeedsNoAnswers) {
  options_.verifier = "true";
  std::string text;
  for (int i = 0; i < 50; ++i) text += R"({"prompt":")" + std::to_string(i) + "=\"}\n";
  EXPECT_TRUE(open(text).has_value());
}

}  // namespace
}  // namespace plexrl::cli
