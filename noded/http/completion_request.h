// SPDX-License-Identifier: Apache-2.0
// The JSON bodies of /v1/completions, /v1/chat/completions, /tokenize and /detokenize as values.
// Fields that nobody knows are ignored; what is known but not possible here is refused with a
// sentence. The work is linear in the body's length. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace plexrl::http {

using Tokens = std::vector<std::int32_t>;
using PromptInput = std::variant<std::string, Tokens>;
struct ChatInput;  // http/chat_input.h

// Text of prompts and messages in one request. Tokenizing holds the loop: see doc/http.md.
inline constexpr std::size_t kMaxText = std::size_t{128} << 10;
inline constexpr std::size_t kMaxStops = 16;
inline constexpr std::size_t kMaxStopBytes = 256;

struct CompletionRequest {
  std::string model;                      // "": the job's first base
  std::vector<PromptInput> prompts;       // of completions
  std::shared_ptr<const ChatInput> chat;  // of chat; the other one is empty
  std::optional<std::uint32_t> max_tokens;
  std::uint32_t n = 1;
  float temperature = 1.0F;
  float top_p = 1.0F;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  Tokens stop_token_ids;
  bool include_stop = false;  // include_stop_str_in_output
  bool ignore_end = false;    // ignore_eos
  bool skip_special = true;   // in the text of an answer
  bool add_special = true;    // a begin token in front of a text
  bool echo = false;
  bool logprobs = false;  // of the sampled tokens
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // return_tokens_as_token_ids: "token_id:123" for a token's text
  bool stream = false;
  bool include_usage = false;
};

struct TokenizeRequest {
  std::string model;
  std::string prompt;
  std::shared_ptr<const ChatInput> chat;  // instead of `prompt`
  bool add_special = true;
  bool token_texts = false;  // return_token_strs
};

struct DetokenizeRequest {
  std::string model;
  Tokens tokens;
};

// INVALID_ARGUMENT, UNSUPPORTED, TOO_LARGE; `field` is then the field's name, "" for the whole.
[[nodiscard]] Result<CompletionRequest> parse_completion(std::string_view body, std::string* field);
[[nodiscard]] Result<CompletionRequest> parse_chat(std::string_view body, std::string* field);
[[nodiscard]] Result<TokenizeRequest> parse_tokenize(std::string_view body, std::string* field);
[[nodiscard]] Result<DetokenizeRequest> parse_detokenize(std::string_view body, std::string* field);

}  // namespace plexrl::http
