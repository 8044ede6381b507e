// SPDX-License-Identifier: Apache-2.0
// plexrl model import, export, merge: directories of models made from other files.
#pragma once

#include "cli/command.h"

namespace plexrl::cli {

void add_model_copies(CLI::App& group, Run& chosen);

}  // namespace plexrl::cli
