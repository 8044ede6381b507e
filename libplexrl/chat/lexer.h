// SPDX-License-Identifier: Apache-2.0
// Cuts a chat template into tokens. White space around tags is what Jinja leaves with trim_blocks
// and lstrip_blocks, which is how the `transformers` library reads these templates: a block's line
// break goes with it, and so does the white space before a block that begins a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::chat {

enum class TokenKind : std::uint8_t {
  kText,         // outside of tags
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kName,
  kString,
  kInteger,
  kFloat,
  kSign,  // an operator or bracket
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a string: what it stands for
  std::size_t line = 1;
};

// INVALID_ARGUMENT names the line. The last token is kEnd.
[[nodiscard]] Result<std::vector<Token>> lex(std::string_view source);

// "chat template, line N: " and what is wrong.
[[nodiscard]] Status wrong(std::size_t line, const std::string& what);

}  // namespace plexrl::chat
