// SPDX-License-Identifier: Apache-2.0
// What is in the description of a model's tokenizer (tokenizer_description.h), for those who read
// and write text: `plexrl train` and plexrld's HTTP.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace plexrl::model {

struct TokenizerParts {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::vector<std::int32_t> ends;  // that end an answer by the model's files; may be none
  std::string chat_template;       // "": the model has none
  std::map<std::string, std::string> tokens;  // that the template may name: bos_token, eos_token
};

// Of {"type":"tokenizer.json",...}. INVALID_ARGUMENT: not such a description, or more tokens than
// the model has. UNSUPPORTED: not byte-level BPE.
[[nodiscard]] Result<TokenizerParts> read_tokenizer_parts(const nlohmann::json& description);

}  // namespace plexrl::model
