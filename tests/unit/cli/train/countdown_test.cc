// SPDX-License-Identifier: Apache-2.0
// The countdown problems, and the arithmetic that checks what a model wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/train/arithmetic.h"
#include "cli/train/countdown_environment.h"

namespace plexrl::cli {
namespace {

std::optional<Fraction> value_of(std::string_view text) {
  const auto result = evaluate(text);
  return result ? result->value : std::nullopt;
}

TEST(Arithmetic, FollowsTheUsualRules) {
  const std::pair<const char*, Fraction> rows[] = {
      {"7", {7, 1}},      {"2+3*4", {14, 1}},   {"(2+3)*4", {20, 1}},
      {"10-4-3", {3, 1}}, {"24/4/2", {3, 1}},   {" 1 / 3 + 1 / 6 ", {1, 2}},
      {"3-(5)", {-2, 1}}, {"1/(2-4)", {-1, 2}}, {"((((9))))", {9, 1}},
      {"8/3*3", {8, 1}},  {"007+1", {8, 1}},    {"0*5/7", {0, 1}}};
  for (const auto& [text, value] : rows) EXPECT_EQ(value_of(text), value) << text;
}

TEST(Arithmetic, KeepsTheNumbersInOrder) {
  EXPECT_EQ(evaluate("3*(1+20)-3")->numbers, (std::vector<std::int64_t>{3, 1, 20, 3}));
}

TEST(Arithmetic, HasNoValueBeyondItsRange) {
  for (const char* text : {"1/0", "5/(3-3)", "1/(1/(2-2))", "999999999*999999999*999999999",
                           "1/999999999/999999999/999999999"}) {
    const auto result = evaluate(text);
    ASSERT_TRUE(result) << text;
    EXPECT_FALSE(result->value) << text;
  }
}

TEST(Arithmetic, RefusesWhatIsNoExpression) {
  for (const char* text : {"", " ", "+", "1+", "*2", "-3", "1 2", "(1", "1)", "()", "1+(2", "2^3",
                           "1+2=3", "one", "1,000", "1.5", "0x1", "1000000001", "2(3)"})
    EXPECT_FALSE(evaluate(text)) << text;
  using std::string;
  EXPECT_FALSE(evaluate(string("1+2\0", 4)));
  EXPECT_TRUE(evaluate(string(50, '(') + "1" + string(50, ')')));
  EXPECT_FALSE(evaluate(string(51, '(') + "1" + string(51, ')')));
  EXPECT_FALSE(evaluate(string(1000, ' ') + "1"));
}

TEST(Countdown, EveryProblemIsSolvedByItsReference) {
  for (const char* name : {"countdown", "countdown:2", "countdown:6"}) {
    const auto environment = CountdownEnvironment::open(name);
    ASSERT_TRUE(environment) << name;
    ProblemSource source{Random(3, Stream::kProblems, 1)};
    std::set<std::size_t> counts;
    for (int n = 0; n < 300; ++n) {
      const Problem problem = (*environment)->training_problem(source);
      const auto solution = evaluate(problem.answer);
      ASSERT_TRUE(solution && solution->value) << problem.answer;
      EXPECT_EQ(solution->value->bottom, 1);
      EXPECT_GE(solution->value->top, 1);
      EXPECT_LE(solution->value->top, 100);
      counts.insert(solution->numbers.size());
      EXPECT_LT(problem.answer.size(), (*environment)->max_answer_chars());
      EXPECT_EQ((*environment)->score({{&problem, problem.answer, true}}).value()[0], 1.0);
      const std::string target = std::to_string(solution->value->top);
      EXPECT_NE(problem.prompt.find("equals " + target + "."), std::string::npos);
      for (const std::int64_t number : solution->numbers)
        EXPECT_NE(problem.prompt.find(" " + std::to_string(number)), std::string::npos);
    }
    EXPECT_EQ(counts.size(), name == std::string("countdown") ? 2U : 1U);
  }
}

TEST(Countdown, RewardsSolutionsAndTheirForm) {
  const Problem problem{"...", "(44+19)+35"};
  const auto reward = [&](const char* text, bool stopped = true) {
    return CountdownEnvironment::reward({&problem, text, stopped});
  };
  EXPECT_EQ(reward("44+19+35"), 1.0);
  EXPECT_EQ(reward("35 + (19 + 44)"), 1.0);
  EXPECT_EQ(reward("44+19+35", false), 0.0) << "cut off";
  EXPECT_EQ(reward("44+19-35"), 0.1);
  EXPECT_EQ(reward("44/(19-35-44)"), 0.0) << "44 twice";
  EXPECT_EQ(reward("44+19"), 0.0);
  EXPECT_EQ(reward("98"), 0.0);
  EXPECT_EQ(reward("44+19+35+0"), 0.0) << "a number that was not given";
  EXPECT_EQ(reward("the answer is 44+19+35"), 0.0);
  EXPECT_EQ(reward("It is <answer> 44+19+35 </answer> indeed", false), 1.0);
  EXPECT_EQ(reward("<answer>1</answer> no: <answer>19+44+35</answer>"), 1.0) << "the last counts";
  EXPECT_EQ(reward("<answer>44+19+35"), 0.0);
  EXPECT_EQ(reward(""), 0.0);
}

TEST(Countdown, ADivisionByZeroHasTheFormOnly) {
  const Problem problem{"...", "3+3+4"};
  EXPECT_EQ(CountdownEnvironment::reward({&problem, "4/(3-3)", true}), 0.1);
}

TEST(Countdown, OneProblemInTenIsHeldOutWhateverTheOrderOfItsNumbers) {
  CountdownEnvironment environment(3, 3);
  ProblemSource source{Random(1, Stream::kProblems, 1)};
  const auto key = [](const Problem& problem) {
    auto numbers = evaluate(problem.answer)->numbers;
    std::sort(numbers.begin(), numbers.end());
    return std::pair(numbers, evaluate(problem.answer)->value->top);
  };
  std::set<std::pair<std::vector<std::int64_t>, std::int64_t>> trained;
  for (int n = 0; n < 3000; ++n) trained.insert(key(environment.training_problem(source)));
  for (int n = 0; n < 1000; ++n)
    EXPECT_FALSE(trained.contains(key(environment.held_out_problem(source.random))));
}

TEST(Countdown, ItsNumberIsChecked) {
  for (const char* name :
       {"countdown:", "countdown:1", "countdown:7", "countdown:33", "countdown:x"})
    EXPECT_EQ(CountdownEnvironment::open(name).error().code(), Code::INVALID_ARGUMENT) << name;
}

}  // namespace
}  // namespace plexrl::cli
