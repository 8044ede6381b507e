// SPDX-License-Identifier: Apache-2.0
#include "cli/train/add_environment.h"

#include <algorithm>
#include <cstdio>

namespace plexrl::cli {
namespace {

std::string prompt(std::uint32_t a, std::uint32_t b) {
  char text[16];
  std::snprintf(text, sizeof text, "%02u+%02u=", a % 100, b % 100);
  return text;
}

Problem draw_from(Random& random, bool held_out) {
  for (;;) {
    const auto a = static_cast<std::uint32_t>(random.below(100));
    const auto b = static_cast<std::uint32_t>(random.below(100));
    if (AddEnvironment::held_out(a, b) == held_out) return AddEnvironment::problem(a, b);
  }
}

}  // namespace

Problem AddEnvironment::problem(std::uint32_t a, std::uint32_t b) {
  char sum[16];
  std::snprintf(sum, sizeof sum, "%03u", a + b);
  std::string answer = sum;
  std::reverse(answer.begin(), answer.end());
  return {prompt(a, b), answer};
}

bool AddEnvironment::held_out(std::uint32_t a, std::uint32_t b) {
  return is_held_out(prompt(std::min(a, b), std::max(a, b)));
}

Problem AddEnvironment::training_problem(ProblemSource& source) {
  return draw_from(source.random, false);
}

Problem AddEnvironment::held_out_problem(Random& random) { return draw_from(random, true); }

Result<std::vector<double>> AddEnvironment::score(const std::vector<Attempt>& attempts) {
  return exact_matches(attempts);
}

}  // namespace plexrl::cli
