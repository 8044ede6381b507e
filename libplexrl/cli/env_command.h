// SPDX-License-Identifier: Apache-2.0
// `plexrl env`: what PlexRL has set in this job, for a shell: eval "$(plexrl env)".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "client/hook_client.h"

namespace plexrl::cli {

using client::EnvPairs;

// All PLEXRL_* pairs of an environment block and those that PLEXRL_MARKED names, in the order of
// their names.
[[nodiscard]] EnvPairs plexrl_pairs(const char* const* environment);
// "export NAME='value'" lines that every POSIX shell reads back as the same bytes.
[[nodiscard]] std::string shell_exports(const EnvPairs& pairs);

void add_env(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
