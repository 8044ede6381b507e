// SPDX-License-Identifier: Apache-2.0
// `plexrl job open|close`: what Slurm's prolog and epilog do through spank_plexrl, by hand, for a
// node without Slurm. Root only.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_job(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
