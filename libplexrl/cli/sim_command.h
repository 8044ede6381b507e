// SPDX-License-Identifier: Apache-2.0
// `plexrl sim`.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_sim(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
