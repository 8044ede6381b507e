// SPDX-License-Identifier: Apache-2.0
// What belongs to a model in Hugging Face layout besides its weights and config.json.
#pragma once

#include <array>

namespace plexrl::model {

inline constexpr std::array kSideFiles = {"generation_config.json",
                                          "tokenizer.json",
                                          "tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "vocab.json",
                                          "merges.txt",
                                          "tokenizer.model",
                                          "chat_template.jinja",
                                          "chat_template.json",
                                          "plexrl_tokenizer.json",
                                          "LICENSE",
                                          "LICENSE.txt",
                                          "LICENSE.md",
                                          "NOTICE",
                                          "README.md"};

}  // namespace plexrl::model
