// SPDX-License-Identifier: Apache-2.0
// AddedTokens: finds tokens that stand for themselves, such as <|im_end|>, in text: leftmost, of
// those the longest. Time grows with the text times the longest token (at most 256 bytes).
// Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::tokenizer {

struct AddedToken {
  std::int32_t id = 0;
  std::string text;
  bool special = false;      // not a part of what a user may write
  bool single_word = false;  // only where no word continues on either side
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;   // looked for in the normalised text
};

class AddedTokens {
 public:
  static constexpr std::size_t kMaxBytes = 256;
  struct Piece {
    std::string_view text;
    const AddedToken* token = nullptr;  // nullptr: text between tokens; never empty
  };

  AddedTokens() = default;
  // INVALID_ARGUMENT: an empty one, or one above kMaxBytes. Of two with the same text the last
  // counts.
  [[nodiscard]] static Result<AddedTokens> build(std::vector<AddedToken> tokens);

  // Appends to `pieces` what `text`, which must be UTF-8, consists of. `special`: also those that
  // are special, but for ones with a byte that `given`, as long as `text` or empty, marks by not 0.
  void split(std::string_view text, bool special, std::string_view given,
             std::vector<Piece>* pieces) const;
  [[nodiscard]] const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  struct Node {
    std::map<char, std::uint32_t> next;
    std::int32_t token = -1;  // index
  };
  // The longest token that `text` begins with.
  [[nodiscard]] const AddedToken* longest_at(std::string_view text, bool special,
                                             std::string_view given) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> first_{};  // some token begins with the byte
};

}  // namespace plexrl::tokenizer
