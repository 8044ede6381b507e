// SPDX-License-Identifier: Apache-2.0
// The table of subcommands and the program around it.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

// Declares all subcommands in `app`. `chosen` must live as long as `app`.
void add_commands(CLI::App& app, Run& chosen);

// main() of `plexrl`: parses, runs, reports; returns the exit status. One call per process or test.
[[nodiscard]] int run_program(int argc, const char* const* argv);

}  // namespace plexrl::cli
