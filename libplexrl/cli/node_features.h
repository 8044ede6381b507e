// SPDX-License-Identifier: Apache-2.0
// The part of `plexrl node-check` that keeps the node features of a pool true (pool_features.h).
// Pure functions over what Slurm's clients print.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/pool_features.h"

namespace plexrl::cli {

// The value of " NAME=" in a line of scontrol, up to the next blank; empty when it is not there.
[[nodiscard]] std::string_view scontrol_field(std::string_view line, std::string_view name);

// Whether Slurm has the pool's features for the node that `scontrol show node --oneliner` shows.
[[nodiscard]] bool has_pool_features(std::string_view pool, std::string_view node_line);

// Kinds that no job of the node is of; `comments` holds an AdminComment per line.
[[nodiscard]] std::vector<config::JobKind> welcome_kinds(std::string_view comments);

// What ActiveFeatures of the node should be, others' as they are; nullopt: what it is.
[[nodiscard]] std::optional<std::string> wanted_features(
    std::string_view pool, std::string_view node_line, const std::vector<config::JobKind>& welcome);

}  // namespace plexrl::cli
