// SPDX-License-Identifier: Apache-2.0
// `plexrl train`: the built-in RLVR controller; see train/controller.h.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_train(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
