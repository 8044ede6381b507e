// SPDX-License-Identifier: Apache-2.0
// BytePairs: byte-pair encoding (Sennrich et al., 2016) over bytes. A word begins as one token per
// byte; the adjacent pair whose merge has the lowest rank, the leftmost of equal ones, becomes one
// token, until no pair has a merge. O(n log n) for a word of n bytes, whatever is in it. Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace plexrl::tokenizer {

using TokenId = std::int32_t;
constexpr TokenId kNoToken = -1;

struct Merge {
  TokenId left = kNoToken, right = kNoToken, whole = kNoToken;
};

class BytePairs {
 public:
  // `words`: bytes of the tokens that text can become, by id; "" for the others. `merges` by rank;
  // of two of the same pair the last counts. `whole_words`: a word that is a token is not taken
  // apart. `unknown`: for bytes without a token, kNoToken leaves them out.
  BytePairs(std::vector<std::string> words, const std::vector<Merge>& merges, bool whole_words,
            TokenId unknown);

  void encode(std::string_view word, std::vector<TokenId>* out) const;

 private:
  struct Step {
    std::uint32_t rank = 0;
    TokenId whole = kNoToken;
  };
  [[nodiscard]] const Step* step_of(TokenId left, TokenId right) const;

  std::unordered_map<std::string, TokenId> ids_;  // only when words are taken whole
  std::array<TokenId, 256> of_byte_{};
  std::unordered_map<std::uint64_t, Step> steps_;  // by left and right
  TokenId unknown_;
};

}  // namespace plexrl::tokenizer
