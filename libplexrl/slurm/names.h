// SPDX-License-Identifier: Apache-2.0
// is_name: what pools, models and the like may be called where they travel as text between fields.
#pragma once

#include <algorithm>
#include <string_view>

namespace plexrl::slurm {

[[nodiscard]] constexpr bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

constexpr std::size_t kMaxName = 64;

[[nodiscard]] constexpr bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxName &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

}  // namespace plexrl::slurm
