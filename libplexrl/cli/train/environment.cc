// SPDX-License-Identifier: Apache-2.0
#include "cli/train/environment.h"

namespace plexrl::cli {

double exact_match(const Attempt& attempt) {
  return attempt.stopped && attempt.completion == attempt.problem->answer ? 1.0 : 0.0;
}

std::vector<double> exact_matches(const std::vector<Attempt>& attempts) {
  std::vector<double> rewards;
  rewards.reserve(attempts.size());
  for (const Attempt& attempt : attempts) rewards.push_back(exact_match(attempt));
  return rewards;
}

}  // namespace plexrl::cli
