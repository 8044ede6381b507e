// SPDX-License-Identifier: Apache-2.0
// `plexrl report`: what one job did and how long it waited.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"

namespace plexrl::cli {

// The daemon's document of that name (doc/service.md) as text.
[[nodiscard]] std::string render_report(const nlohmann::json& document);

void add_report(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
