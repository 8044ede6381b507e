// SPDX-License-Identifier: Apache-2.0
// `plexrl drain` and `plexrl resume`: whether the service of this node takes new jobs. For root and
// the admin group.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_drain(CLI::App& app, Run& chosen);
void add_resume(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
