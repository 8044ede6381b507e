// SPDX-License-Identifier: Apache-2.0
// `plexrl model list|verify`: the base models of the site file.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_model(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
