// SPDX-License-Identifier: Apache-2.0
// `plexrl lease run -- CMD`: runs a program that brings its own engine while it holds a lease of
// the device group. The exit status is CMD's (128 + signal when a signal ended it), not one of
// command.h, unless the lease itself failed.
//
// Making way (--yield-signal): when asked, CMD gets the signal. It frees the device and then either
// ends or stops itself (SIGSTOP); a stop that follows a request is the yield, and CMD is continued
// once the lease is back. A stop that was not asked for is none.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/command.h"

namespace plexrl::cli {

// "USR1", "SIGUSR1" or "10". INVALID_ARGUMENT for what is no signal or cannot be caught.
[[nodiscard]] Result<int> parse_signal(const std::string& text);

void add_lease(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
