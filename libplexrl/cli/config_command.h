// SPDX-License-Identifier: Apache-2.0
// `plexrl config check|dump|slurm`: the site file.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_config(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
