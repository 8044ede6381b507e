// SPDX-License-Identifier: Apache-2.0
#include "cli/train/countdown_environment.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/train/arithmetic.h"

namespace plexrl::cli {
namespace {

constexpr std::uint64_t kLargestNumber = 99;
constexpr std::int64_t kLargestTarget = 100;
constexpr double kForTheForm = 0.1;

struct Term {
  Fraction value{};
  std::string text;
  bool compound = false;
};

std::string in_brackets(const Term& term) {
  return term.compound ? "(" + term.text + ")" : term.text;
}

// Joins two random terms until one is left; whole positive numbers only, as a person would.
std::optional<Term> random_solution(std::vector<Term> terms, Random& random) {
  while (terms.size() > 1) {
    std::swap(terms.back(), terms[random.below(terms.size())]);
    const Term b = std::move(terms.back());
    terms.pop_back();
    std::swap(terms.back(), terms[random.below(terms.size())]);
    Term& a = terms.back();
    const char operation = "+-*/"[random.below(4)];
    const auto value = combine(a.value, operation, b.value);
    if (!value || value->bottom != 1 || value->top < 1) return std::nullopt;
    a = {*value, in_brackets(a) + operation + in_brackets(b), true};
  }
  return terms.front();
}

std::string listed(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += i + 1 == numbers.size() ? " and " : ", ";
    text += std::to_string(numbers[i]);
  }
  return text;
}

std::string prompt_of(const std::vector<std::int64_t>& numbers, std::int64_t target) {
  return "Write an expression that equals " + std::to_string(target) +
         ". Use each of the numbers " + listed(numbers) + " exactly once, and only + - * / ( ).\n";
}

std::string split_key(std::vector<std::int64_t> numbers, std::int64_t target) {
  std::sort(numbers.begin(), numbers.end());
  return "countdown " + listed(numbers) + " = " + std::to_string(target);
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::optional<std::string_view> answer_in(const Attempt& attempt) {
  constexpr std::string_view kOpen = "<answer>";
  constexpr std::string_view kClose = "</answer>";
  const std::string_view text = attempt.completion;
  const std::size_t open = text.rfind(kOpen);
  if (open == std::string_view::npos) return attempt.stopped ? std::optional(text) : std::nullopt;
  const std::size_t begin = open + kOpen.size();
  const std::size_t close = text.find(kClose, begin);
  if (close == std::string_view::npos) return std::nullopt;
  return text.substr(begin, close - begin);
}

}  // namespace

Result<std::unique_ptr<Environment>> CountdownEnvironment::open(const std::string& name) {
  if (name == "countdown") return std::unique_ptr<Environment>(new CountdownEnvironment(3, 4));
  const std::string count = name.substr(name.find(':') + 1);
  if (count.size() != 1 || count[0] < '0' + static_cast<char>(kFewest) ||
      count[0] > '0' + static_cast<char>(kMost))
    return error(Code::INVALID_ARGUMENT, "--env '%s': write countdown:N with N from %u to %u",
                 name.c_str(), kFewest, kMost);
  const auto number = static_cast<std::uint32_t>(count[0] - '0');
  return std::unique_ptr<Environment>(new CountdownEnvironment(number, number));
}

Problem CountdownEnvironment::draw(Random& random, bool held_out) const {
  for (;;) {
    const std::uint64_t count = fewest_ + random.below(most_ - fewest_ + 1);
    std::vector<std::int64_t> numbers;
    std::vector<Term> terms;
    for (std::uint64_t i = 0; i < count; ++i) {
      numbers.push_back(static_cast<std::int64_t>(1 + random.below(kLargestNumber)));
      terms.push_back({{numbers.back(), 1}, std::to_string(numbers.back()), false});
    }
    const auto solution = random_solution(std::move(terms), random);
    if (!solution || solution->value.top > kLargestTarget) continue;
    const std::int64_t target = solution->value.top;
    if (is_held_out(split_key(numbers, target)) != held_out) continue;
    return {prompt_of(numbers, target), solution->text};
  }
}

Problem CountdownEnvironment::training_problem(ProblemSource& source) {
  return draw(source.random, false);
}

Problem CountdownEnvironment::held_out_problem(Random& random) { return draw(random, true); }

double CountdownEnvironment::reward(const Attempt& attempt) {
  const auto text = answer_in(attempt);
  const auto given = text ? evaluate(*text) : std::nullopt;
  const auto wanted = evaluate(attempt.problem->answer);  // what was asked
  if (!given || !wanted || sorted(given->numbers) != sorted(wanted->numbers)) return 0.0;
  return given->value && given->value == wanted->value ? 1.0 : kForTheForm;
}

Result<std::vector<double>> CountdownEnvironment::score(const std::vector<Attempt>& attempts) {
  std::vector<double> rewards;
  rewards.reserve(attempts.size());
  for (const Attempt& attempt : attempts) rewards.push_back(reward(attempt));
  return rewards;
}

}  // namespace plexrl::cli
