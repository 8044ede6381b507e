// SPDX-License-Identifier: Apache-2.0
// A field of a document that plexrl train wrote and reads again.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace plexrl::cli {

// CORRUPT names the field that is missing or of another type.
template <class T>
[[nodiscard]] Status take_field(const nlohmann::json& document, const char* name, T& value) {
  const auto found = document.find(name);
  if (found == document.end()) return error(Code::CORRUPT, "'%s' is missing", name);
  try {
    value = found->get<T>();
  } catch (const nlohmann::json::exception&) {
    return error(Code::CORRUPT, "'%s' has another type", name);
  }
  return {};
}

}  // namespace plexrl::cli
