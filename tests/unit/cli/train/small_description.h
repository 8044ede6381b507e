// SPDX-License-Identifier: Apache-2.0
// The description of a tokenizer.json of all bytes, one merge ("10") and two special tokens.
#pragma once

#include "unit/tokenizer/small_tokenizer.h"

namespace plexrl::cli {

inline constexpr int kSmallTen = 256, kSmallEnd = 257, kSmallOtherEnd = 258;

inline nlohmann::json small_description() {
  nlohmann::json tokenizer = tokenizer::small_tokenizer({{"1", "0"}});
  tokenizer::add_token(&tokenizer, kSmallEnd, "<|im_end|>");
  tokenizer::add_token(&tokenizer, kSmallOtherEnd, "<|endoftext|>");
  return {{"type", "tokenizer.json"},
          {"vocab_size", 320},
          {"tokenizer", tokenizer},
          {"eos_token_ids", {kSmallEnd, kSmallOtherEnd}},
          {"tokens", {{"eos_token", "<|im_end|>"}}}};
}

}  // namespace plexrl::cli
