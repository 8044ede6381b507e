// SPDX-License-Identifier: Apache-2.0
// `plexrl status`: the service of this node.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"

namespace plexrl::cli {

// The daemon's document of that name (doc/service.md) as text.
[[nodiscard]] std::string render_status(const nlohmann::json& document);
// Its member "memory".
[[nodiscard]] std::string render_state(const nlohmann::json& memory);

void add_status(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
