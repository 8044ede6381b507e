// SPDX-License-Identifier: Apache-2.0
#include "cli/train/environment.h"

#include "cli/train/add_environment.h"
#include "cli/train/jsonl_environment.h"
#include "cli/train/sort_environment.h"

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

Result<std::unique_ptr<Environment>> make_environment(const TrainOptions& options) {
  constexpr std::string_view kJsonl = "jsonl:";
  if (options.environment.starts_with(kJsonl)) return JsonlEnvironment::open(options);
  if (!options.verifier.empty())
    return error(Code::INVALID_ARGUMENT,
                 "--verifier: environment '%s' checks answers itself; use jsonl:FILE",
                 options.environment.c_str());
  if (options.stop_text != TrainOptions().stop_text)
    return error(Code::INVALID_ARGUMENT,
                 "--stop: environment '%s' ends its answers itself; use jsonl:FILE",
                 options.environment.c_str());
  std::unique_ptr<Environment> environment;
  if (options.environment == "sort") environment = std::make_unique<SortEnvironment>();
  if (options.environment == "add") environment = std::make_unique<AddEnvironment>();
  if (environment == nullptr)
    return error(Code::INVALID_ARGUMENT, "--env '%s': write sort, add or jsonl:FILE",
                 options.environment.c_str());
  return environment;
}

}  // namespace plexrl::cli
