// SPDX-License-Identifier: Apache-2.0
// `plexrl drain` and `plexrl resume`: whether the service of this node takes new jobs; `plexrl
// evict` and `plexrl reload`. For root and the admin groups.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_drain(CLI::App& app, Run& chosen);
void add_resume(CLI::App& app, Run& chosen);
void add_evict(CLI::App& app, Run& chosen);
void add_reload(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
