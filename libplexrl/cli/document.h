// SPDX-License-Identifier: Apache-2.0
// Reading fields of the daemon's documents (doc/service.md) for a table. A field that an older or
// newer daemon does not send is shown as "-", never an error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plexrl::cli {

// Strings as they are, integers and booleans as text; "" for anything else.
[[nodiscard]] std::string cell(const nlohmann::json& object, const char* name);
[[nodiscard]] std::string cell_bytes(const nlohmann::json& object, const char* name);
[[nodiscard]] std::string cell_seconds(const nlohmann::json& object, const char* name);
[[nodiscard]] std::string cell_fixed(const nlohmann::json& object, const char* name, int decimals);
// The array of that name, or an empty one.
[[nodiscard]] const nlohmann::json& items(const nlohmann::json& object, const char* name);
// The object of that name, or an empty one.
[[nodiscard]] const nlohmann::json& member(const nlohmann::json& object, const char* name);

}  // namespace plexrl::cli
