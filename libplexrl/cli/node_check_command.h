// SPDX-License-Identifier: Apache-2.0
// `plexrl node-check`: for Slurm's HealthCheckProgram. Asks plexrld whether it answers within a
// deadline; when it does not, drains the node with a marked reason, so that it does not eat the
// queue, and resumes it when plexrld is back. A node that somebody else drained is left alone, and
// so is a node that is in no pool.
#pragma once

#include <string>
#include <string_view>

#include "cli/command.h"

namespace plexrl::cli {

// The reason that marks our own drains begins so.
constexpr std::string_view kDrainMark = "plexrl-node-check:";

enum class NodeAction { kNone, kDrain, kResume };

// What to do about a node, given what `scontrol show node --oneliner` says about it. Pure.
[[nodiscard]] NodeAction decide(bool healthy, std::string_view node_line);

void add_node_check(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
