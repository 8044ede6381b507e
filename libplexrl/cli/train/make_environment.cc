// SPDX-License-Identifier: Apache-2.0
// Apart from environment.cc, so that one environment can be had without all others.
#include "cli/train/add_environment.h"
#include "cli/train/command_environment.h"
#include "cli/train/countdown_environment.h"
#include "cli/train/jsonl_environment.h"
#include "cli/train/sort_environment.h"

namespace plexrl::cli {

namespace {

bool is_jsonl(const TrainOptions& options) { return options.environment.starts_with("jsonl:"); }

bool is_countdown(const TrainOptions& options) {
  return options.environment == "countdown" || options.environment.starts_with("countdown:");
}

}  // namespace

Status check_environment(const TrainOptions& options) {
  if (!options.env_command.empty() || is_jsonl(options)) return {};
  if (!options.verifier.empty())
    return error(Code::INVALID_ARGUMENT,
                 "--verifier: environment '%s' checks answers itself; use jsonl:FILE",
                 options.environment.c_str());
  if (options.stop_text != TrainOptions().stop_text)
    return error(Code::INVALID_ARGUMENT,
                 "--stop: environment '%s' ends its answers itself; use jsonl:FILE",
                 options.environment.c_str());
  if (is_countdown(options)) return CountdownEnvironment::open(options.environment).status();
  if (options.environment == "sort" || options.environment == "add") return {};
  return error(Code::INVALID_ARGUMENT, "--env '%s': write sort, add, countdown[:N] or jsonl:FILE",
               options.environment.c_str());
}

Result<std::unique_ptr<Environment>> make_environment(const TrainOptions& options) {
  PLEXRL_TRY(check_environment(options));
  if (!options.env_command.empty()) return CommandEnvironment::open(options);
  if (is_jsonl(options)) return JsonlEnvironment::open(options);
  if (is_countdown(options)) return CountdownEnvironment::open(options.environment);
  std::unique_ptr<Environment> environment;
  if (options.environment == "add") environment = std::make_unique<AddEnvironment>();
  if (options.environment == "sort") environment = std::make_unique<SortEnvironment>();
  return environment;
}

}  // namespace plexrl::cli
