// SPDX-License-Identifier: Apache-2.0
// is_name: what pools, models and the like may be called where they travel as text between fields,
// and lists of words as such text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

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

[[nodiscard]] inline std::string joined(const std::vector<std::string>& words,
                                        const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

}  // namespace plexrl::slurm
