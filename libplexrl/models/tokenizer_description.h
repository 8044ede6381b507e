// SPDX-License-Identifier: Apache-2.0
// What a job is told of a model's tokenizer.json. The job may not be able to read the model's
// folder, so the contents travel in the model's information (libplexrl(3), Tokenizer):
//   {"type":"tokenizer.json","vocab_size":N,"tokenizer":{...},"eos_token_ids":[...],
//    "tokens":{"bos_token":"...",...},"chat_template":"..."}
// without white space: 1.4 MB for SmolLM2's 49,152 tokens. The parts are checked by who uses them.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace plexrl::model {

// From tokenizer.json, tokenizer_config.json, generation_config.json, config.json and
// chat_template.jinja. "": the folder has no tokenizer.json. `vocab_size`: rows of the model's
// embedding. CORRUPT: a file is not what it should be; TOO_LARGE; IO.
[[nodiscard]] Result<std::string> describe_tokenizer(const std::string& dir,
                                                     std::int64_t vocab_size);

}  // namespace plexrl::model
