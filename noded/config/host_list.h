// SPDX-License-Identifier: Apache-2.0
// Slurm host list expressions: "node[1-4,7],login2", "rack[1-2]n[01-08]". Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::config {

constexpr std::size_t kMaxHosts = 65536;  // of one expression; larger is a typing error

// Names in the order of the expression; leading zeros are kept as Slurm keeps them.
// INVALID_ARGUMENT names the part that is wrong; TOO_LARGE above kMaxHosts.
[[nodiscard]] Result<std::vector<std::string>> expand_hosts(std::string_view expression);

}  // namespace plexrl::config
