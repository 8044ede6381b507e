// SPDX-License-Identifier: Apache-2.0
// Apart from environment.cc, so that one environment can be had without all others.
#include "cli/train/add_environment.h"
#include "cli/train/command_environment.h"
#include "cli/train/countdown_environment.h"
#include "cli/train/jsonl_environment.h"
#include "cli/train/sort_environment.h"

namespace plexrl::cli {

Result<std::unique_ptr<Environment>> make_environment(const TrainOptions& options) {
  constexpr std::string_view kJsonl = "jsonl:";
  if (!options.env_command.empty()) return CommandEnvironment::open(options);
  if (options.environment.starts_with(kJsonl)) return JsonlEnvironment::open(options);
  if (!options.verifier.empty())
    return error(Code::INVALID_ARGUMENT,
                 "--verifier: environment '%s' checks answers itself; use jsonl:FILE",
                 options.environment.c_str());
  if (options.stop_text != TrainOptions().stop_text)
    return error(Code::INVALID_ARGUMENT,
                 "--stop: environment '%s' ends its answers itself; use jsonl:FILE",
                 options.environment.c_str());
  if (options.environment == "countdown" || options.environment.starts_with("countdown:"))
    return CountdownEnvironment::open(options.environment);
  std::unique_ptr<Environment> environment;
  if (options.environment == "sort") environment = std::make_unique<SortEnvironment>();
  if (options.environment == "add") environment = std::make_unique<AddEnvironment>();
  if (environment == nullptr)
    return error(Code::INVALID_ARGUMENT, "--env '%s': write sort, add, countdown[:N] or jsonl:FILE",
                 options.environment.c_str());
  return environment;
}

}  // namespace plexrl::cli
