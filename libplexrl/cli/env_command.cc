// SPDX-License-Identifier: Apache-2.0
#include "cli/env_command.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "cli/output.h"
#include "slurm/marked_env.h"

namespace plexrl::cli {
namespace {

struct EnvOptions {
  bool json = false;
};

// Single quotes keep every byte; a quote itself is written as '\''.
std::string shell_quoted(std::string_view value) {
  std::string text = "'";
  for (const char c : value) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

Status run_env(const EnvOptions& options) {
  const EnvPairs pairs = plexrl_pairs(environ);
  const bool in_job = std::any_of(pairs.begin(), pairs.end(),
                                  [](const auto& pair) { return pair.first == "PLEXRL_SOCKET"; });
  if (!in_job)
    return error(
        Code::NOT_FOUND,
        "PLEXRL_SOCKET is not set: this shell is no task of a pool's job; submit with sbatch "
        "--plexrl-pool=NAME and run this inside the job, in a shell of salloc by srun");
  if (options.json)
    print_json(nlohmann::json(std::map<std::string, std::string>(pairs.begin(), pairs.end())));
  else
    print_text(shell_exports(pairs));
  return {};
}

}  // namespace

EnvPairs plexrl_pairs(const char* const* environment) {
  EnvPairs pairs;
  std::vector<std::string> marked;
  for (const char* const* at = environment; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string marker = std::string(slurm::kMarker) + "=";
    if (entry.starts_with(marker)) marked = slurm::marked_names(entry.substr(marker.size()));
  }
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const auto equals = entry.find('=');
    const std::string_view name = entry.substr(0, equals);
    const bool ours =
        entry.starts_with("PLEXRL_") ||
        (name != "SLURM_GRES" && std::find(marked.begin(), marked.end(), name) != marked.end());
    if (!ours || equals == entry.npos) continue;
    pairs.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

std::string shell_exports(const EnvPairs& pairs) {
  std::string text;
  for (const auto& [name, value] : pairs)
    text.append("export ").append(name).append("=").append(shell_quoted(value)).append("\n");
  return text;
}

void add_env(CLI::App& app, Run& chosen) {
  auto* command =
      app.add_subcommand("env", "print the variables that PlexRL has set in this job, for a shell");
  auto options = std::make_shared<EnvOptions>();
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_env);
}

}  // namespace plexrl::cli
