// SPDX-License-Identifier: Apache-2.0
// `plexrl bench op`.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_bench(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
