// SPDX-License-Identifier: Apache-2.0
// `plexrl jobs`: jobs that have a stake in this node's service.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"

namespace plexrl::cli {

// The daemon's document of that name (doc/service.md) as text.
[[nodiscard]] std::string render_jobs(const nlohmann::json& document);

void add_jobs(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
