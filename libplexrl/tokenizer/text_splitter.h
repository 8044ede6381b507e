// SPDX-License-Identifier: Apache-2.0
// TextSplitter: cuts text by a regular expression, as the pre-tokenizers of byte-level BPE do: the
// pieces are the matches and what lies between them; together they are the text. PCRE2 with Unicode
// properties; effort per match is limited, so that no pattern can hang. Immutable, any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::tokenizer {

class TextSplitter {
 public:
  // INVALID_ARGUMENT: PCRE2 does not take the pattern, or it is above 64 KiB.
  [[nodiscard]] static Result<TextSplitter> compile(std::string_view pattern);
  TextSplitter(TextSplitter&&) noexcept;
  TextSplitter& operator=(TextSplitter&&) noexcept;
  ~TextSplitter();

  // `text` must be UTF-8. No piece is empty. INVALID_ARGUMENT: a match took more than the limit.
  [[nodiscard]] Status split(std::string_view text, std::vector<std::string_view>* pieces) const;

 private:
  struct Program;
  explicit TextSplitter(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace plexrl::tokenizer
