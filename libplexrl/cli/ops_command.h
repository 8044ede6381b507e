// SPDX-License-Identifier: Apache-2.0
// `plexrl ops`: operations under way, and why they wait.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"

namespace plexrl::cli {

// The daemon's document of that name (doc/service.md) as text.
[[nodiscard]] std::string render_ops(const nlohmann::json& document);

void add_ops(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
