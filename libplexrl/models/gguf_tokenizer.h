// SPDX-License-Identifier: Apache-2.0
// The tokenizer in a GGUF file as the files of a Hugging Face model directory.
#pragma once

#include <nlohmann/json.hpp>

#include "models/gguf_file.h"

namespace plexrl::model {

struct TokenizerFiles {
  nlohmann::json tokenizer;  // tokenizer.json
  nlohmann::json config;     // tokenizer_config.json: special tokens, chat template
  std::size_t vocabulary = 0;
};

// UNSUPPORTED: not byte-level BPE, or an unknown way to cut text into words; INVALID_ARGUMENT:
// contradicts itself.
[[nodiscard]] Result<TokenizerFiles> tokenizer_of(const GgufFile& file);

}  // namespace plexrl::model
