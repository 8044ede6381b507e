// SPDX-License-Identifier: Apache-2.0
// Messages of a chat, as a data set or an environment writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "cli/train/environment.h"

namespace plexrl::cli {

// Of [{"role":"user","content":"..."}], at least one. INVALID_ARGUMENT for anything else.
[[nodiscard]] Result<std::vector<Message>> read_messages(const nlohmann::json& list);

}  // namespace plexrl::cli
