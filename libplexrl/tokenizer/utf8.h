// SPDX-License-Identifier: Apache-2.0
// UTF-8 as the Unicode Standard defines it (chapter 3, table 3-7): no surrogates, no overlong
// forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plexrl::tokenizer {

enum class Utf8 : std::uint8_t { kCharacter, kCutOff, kInvalid };

struct Utf8Step {
  Utf8 kind = Utf8::kCharacter;
  // kCharacter: of the character. kCutOff: of all that is left, which more bytes may complete.
  // kInvalid: of the part that one U+FFFD replaces (the longest that begins a valid sequence, or
  // one).
  std::size_t bytes = 0;
  char32_t code_point = 0;
};

// What `text`, which is not empty, begins with.
[[nodiscard]] Utf8Step utf8_step(std::string_view text) noexcept;
// The offset of the first byte that is not UTF-8; npos when all is.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text) noexcept;
// With U+FFFD for what is invalid, as in the WHATWG encoding standard.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view bytes);
void append_utf8(std::string* out, char32_t code_point);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace plexrl::tokenizer
