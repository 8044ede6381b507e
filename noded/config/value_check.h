// SPDX-License-Identifier: Apache-2.0
// Whether one value of plexrl.yaml looks as its key says, and the nearest known word for a wrong
// one. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config_keys.h"

namespace plexrl::config {

// "x y z" as words.
[[nodiscard]] std::vector<std::string> split_words(std::string_view words);
// The candidate that is at most two edits away, empty when none is.
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string>& candidates);
// INVALID_ARGUMENT says what is expected; the text does not name the key.
[[nodiscard]] Status check_text(Form form, const char* words, std::string_view value);
[[nodiscard]] Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t min,
                                                 std::uint64_t max);

}  // namespace plexrl::config
