// SPDX-License-Identifier: Apache-2.0
// The answers of /v1/completions and /v1/chat/completions: rows of a generate cut at the stop
// strings, as one JSON document or as server-sent events. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "http/completion_request.h"
#include "http/text_codec.h"

namespace plexrl::http {

// One sequence that the engine made.
struct RawRow {
  Tokens tokens;
  std::vector<float> logprobs;
  bool stopped = false;  // by its last token, not by the length
};

struct AnswerRow {
  Tokens tokens;  // with the one that ended it
  std::vector<float> logprobs;
  std::string text;
  bool stopped = false;
  bool aborted = false;  // by /pause or /sleep, before it had any token
  // What stopped it, unless it was the model's own end: a token or a string of the request.
  std::variant<std::monostate, std::int32_t, std::string> stop_reason;
};

// Where the first stop string is complete the row ends. Linear in the row and in the stop strings.
[[nodiscard]] AnswerRow answer_row(const CompletionRequest& request, const TextCodec& codec,
                                   RawRow raw);

struct Completion {
  std::string id;  // without the prefix
  std::int64_t created_s = 0;
  std::string model;  // as the request named it
  std::vector<Tokens> prompts;
  std::vector<AnswerRow> rows;  // n of each prompt
};

[[nodiscard]] std::string completion_json(const CompletionRequest& request, const TextCodec& codec,
                                          const Completion& completion);
// The same as events; each choice's text is in one of them, as the engine gives it.
[[nodiscard]] std::string completion_events(const CompletionRequest& request,
                                            const TextCodec& codec, const Completion& completion);

struct ListedModel {
  std::string id, root, parent;     // parent "": it is a base
  std::uint32_t max_model_len = 0;  // 0: not known
};
[[nodiscard]] std::string model_json(const ListedModel& model, std::int64_t created_s);
[[nodiscard]] std::string model_list_json(const std::vector<ListedModel>& models,
                                          std::int64_t created_s);

[[nodiscard]] std::string tokenize_json(const Tokens& tokens, std::uint32_t max_model_len,
                                        const TextCodec* with_texts);
[[nodiscard]] std::string detokenize_json(const std::string& text);

}  // namespace plexrl::http
