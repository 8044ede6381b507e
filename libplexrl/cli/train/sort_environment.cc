// SPDX-License-Identifier: Apache-2.0
#include "cli/train/sort_environment.h"

#include <algorithm>

namespace plexrl::cli {
namespace {

Problem draw(Random& random) {
  std::string digits = std::to_string(random.below(1'000'000));
  digits.insert(0, 6 - digits.size(), '0');
  Problem problem{digits + ">", digits};
  std::sort(problem.answer.begin(), problem.answer.end());
  return problem;
}

Problem draw_from(Random& random, bool held_out) {
  Problem problem = draw(random);
  while (SortEnvironment::held_out(problem) != held_out) problem = draw(random);
  return problem;
}

}  // namespace

bool SortEnvironment::held_out(const Problem& problem) {
  return is_held_out("sort " + problem.answer);
}

Problem SortEnvironment::training_problem(ProblemSource& source) {
  return draw_from(source.random, false);
}

Problem SortEnvironment::held_out_problem(Random& random) { return draw_from(random, true); }

Result<std::vector<double>> SortEnvironment::score(const std::vector<Attempt>& attempts) {
  return exact_matches(attempts);
}

}  // namespace plexrl::cli
