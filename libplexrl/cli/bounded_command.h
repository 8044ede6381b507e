// SPDX-License-Identifier: Apache-2.0
// Runs a shell command with a time limit and a bound on its output. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace plexrl::cli {

struct CommandResult {
  int exit_status = 0;
  std::string output;  // stdout
};

// /bin/sh -c `command` in a process group of its own, which is killed in every case before this
// returns, so that nothing that the command started in the background is left. `input` is its
// stdin. TIMEOUT, TOO_LARGE (more than max_output_bytes), IO (cannot start; died by a signal).
[[nodiscard]] Result<CommandResult> run_bounded(const std::string& command, std::string_view input,
                                                Duration time_limit, std::size_t max_output_bytes);

}  // namespace plexrl::cli
