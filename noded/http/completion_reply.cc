// SPDX-License-Identifier: Apache-2.0
#include "http/completion_reply.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/utf8.h"

namespace plexrl::http {
namespace {

using Json = nlohmann::ordered_json;

// Texts of a client may hold any bytes; they are replaced, never refused.
std::string dump(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The bytes of a row, and where each token ends in them.
struct RowBytes {
  std::string bytes;
  std::vector<std::size_t> ends;
};

RowBytes row_bytes(const TextCodec& codec, const Tokens& tokens, bool skip_special) {
  RowBytes row;
  for (const std::int32_t id : tokens) {
    if (!skip_special || !codec.is_special(id)) {
      const std::string_view piece = codec.bytes_of(id);
      row.bytes += piece.empty() ? tokenizer::kReplacement : piece;
    }
    row.ends.push_back(row.bytes.size());
  }
  return row;
}

struct Found {
  std::size_t at = std::string::npos, end = 0;
  const std::string* stop = nullptr;
};

// The stop string that is complete first; of two that end together, the longer one.
Found find_stop(const std::string& bytes, const std::vector<std::string>& stops) {
  Found first;
  for (const std::string& stop : stops) {
    const std::size_t at = bytes.find(stop);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    const bool sooner =
        first.stop == nullptr || end < first.end || (end == first.end && at < first.at);
    if (sooner) first = {at, end, &stop};
  }
  return first;
}

void cut_at_stop(const CompletionRequest& request, const RowBytes& bytes, const Found& found,
                 AnswerRow& row) {
  const auto last = std::lower_bound(bytes.ends.begin(), bytes.ends.end(), found.end);
  const auto count = static_cast<std::size_t>(last - bytes.ends.begin()) + 1;
  row.tokens.resize(std::min(count, row.tokens.size()));
  row.logprobs.resize(std::min(row.logprobs.size(), row.tokens.size()));
  row.text = valid_text(bytes.bytes.substr(0, request.include_stop ? found.end : found.at));
  row.stopped = true;
  row.stop_reason = *found.stop;
}

// JSON has no infinity; vLLM writes this number for it.
double finite(float logprob) { return logprob > -9999.0F ? double{logprob} : -9999.0; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string token_text(const CompletionRequest& request, const TextCodec& codec, std::int32_t id) {
  if (request.tokens_as_ids) return "token_id:" + std::to_string(id);
  return codec.decode({id}, false);
}

Json completion_logprobs(const CompletionRequest& request, const TextCodec& codec,
                         const AnswerRow& row) {
  if (!request.logprobs) return nullptr;
  Json texts = Json::array(), values = Json::array(), top = Json::array(), offsets = Json::array();
  std::size_t offset = 0;
  for (std::size_t i = 0; i < row.tokens.size() && i < row.logprobs.size(); ++i) {
    const std::string text = token_text(request, codec, row.tokens[i]);
    texts.push_back(text);
    values.push_back(finite(row.logprobs[i]));
    top.push_back({{text, finite(row.logprobs[i])}});
    offsets.push_back(offset);
    offset += characters(text);
  }
  return {{"tokens", texts},
          {"token_logprobs", values},
          {"top_logprobs", top},
          {"text_offset", offsets}};
}

Json chat_logprobs(const CompletionRequest& request, const TextCodec& codec, const AnswerRow& row) {
  if (!request.logprobs) return nullptr;
  Json content = Json::array();
  for (std::size_t i = 0; i < row.tokens.size() && i < row.logprobs.size(); ++i) {
    Json bytes = Json::array();
    for (const char c : codec.bytes_of(row.tokens[i]))
      bytes.push_back(static_cast<unsigned char>(c));
    content.push_back({{"token", token_text(request, codec, row.tokens[i])},
                       {"logprob", finite(row.logprobs[i])},
                       {"bytes", bytes},
                       {"top_logprobs", Json::array()}});
  }
  return {{"content", content}};
}

Json stop_reason(const AnswerRow& row) {
  if (const auto* id = std::get_if<std::int32_t>(&row.stop_reason)) return *id;
  if (const auto* text = std::get_if<std::string>(&row.stop_reason)) return *text;
  return nullptr;
}

Json usage(const Completion& completion) {
  std::size_t prompt = 0, made = 0;
  for (const Tokens& tokens : completion.prompts) prompt += tokens.size();
  for (const AnswerRow& row : completion.rows) made += row.tokens.size();
  return {{"prompt_tokens", prompt}, {"completion_tokens", made}, {"total_tokens", prompt + made}};
}

Json head(const CompletionRequest& request, const Completion& completion, bool chunk) {
  const bool chat = request.chat != nullptr;
  const char* const object = !chat   ? "text_completion"
                             : chunk ? "chat.completion.chunk"
                                     : "chat.completion";
  return {{"id", (chat ? "chatcmpl-" : "cmpl-") + completion.id},
          {"object", object},
          {"created", completion.created_s},
          {"model", completion.model}};
}

const Tokens& prompt_of(const CompletionRequest& request, const Completion& completion,
                        std::size_t row) {
  return completion.prompts.at(row / request.n);
}

// A choice but for how it is finished.
Json choice(const CompletionRequest& request, const TextCodec& codec, const Completion& completion,
            std::size_t index, bool chunk) {
  const AnswerRow& row = completion.rows[index];
  Json choice{{"index", index}};
  if (request.chat != nullptr) {
    choice[chunk ? "delta" : "message"] = {{"role", "assistant"}, {"content", row.text}};
    choice["logprobs"] = chat_logprobs(request, codec, row);
  } else {
    const Tokens& prompt = prompt_of(request, completion, index);
    choice["text"] =
        (request.echo ? codec.decode(prompt, request.skip_special) : std::string()) + row.text;
    choice["logprobs"] = completion_logprobs(request, codec, row);
    if (request.return_token_ids) choice["prompt_token_ids"] = prompt;
  }
  if (request.return_token_ids) choice["token_ids"] = row.tokens;
  return choice;
}

void add_finish(Json& choice, const AnswerRow& row) {
  choice["finish_reason"] = row.aborted ? "abort" : row.stopped ? "stop" : "length";
  choice["stop_reason"] = stop_reason(row);
}

std::string event(const Json& document) { return "data: " + dump(document) + "\n\n"; }

Json listed(const ListedModel& model, std::int64_t created_s) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", created_s},
          {"owned_by", "plexrl"},
          {"root", model.root},
          {"parent", model.parent.empty() ? Json() : Json(model.parent)},
          {"max_model_len", model.max_model_len == 0 ? Json() : Json(model.max_model_len)},
          {"permission", Json::array()}};
}

}  // namespace

AnswerRow answer_row(const CompletionRequest& request, const TextCodec& codec, RawRow raw) {
  AnswerRow row;
  row.tokens = std::move(raw.tokens);
  row.logprobs = std::move(raw.logprobs);
  Tokens shown = row.tokens;
  if (raw.stopped && !shown.empty()) {
    row.stopped = true;
    const bool own = std::count(codec.ends().begin(), codec.ends().end(), shown.back()) != 0;
    if (!own) row.stop_reason = shown.back();
    if (own || !request.include_stop) shown.pop_back();
  }
  const RowBytes bytes = row_bytes(codec, shown, request.skip_special);
  const Found found = find_stop(bytes.bytes, request.stop);
  if (found.stop != nullptr) {
    cut_at_stop(request, bytes, found, row);
  } else {
    row.text = valid_text(bytes.bytes);
  }
  return row;
}

std::string completion_json(const CompletionRequest& request, const TextCodec& codec,
                            const Completion& completion) {
  Json document = head(request, completion, false);
  Json choices = Json::array();
  for (std::size_t i = 0; i < completion.rows.size(); ++i) {
    Json one = choice(request, codec, completion, i, false);
    add_finish(one, completion.rows[i]);
    choices.push_back(std::move(one));
  }
  document["choices"] = std::move(choices);
  document["usage"] = usage(completion);
  if (request.chat != nullptr && request.return_token_ids)
    document["prompt_token_ids"] = completion.prompts.at(0);
  return dump(document);
}

std::string completion_events(const CompletionRequest& request, const TextCodec& codec,
                              const Completion& completion) {
  std::string events;
  for (std::size_t i = 0; i < completion.rows.size(); ++i) {
    Json chunk = head(request, completion, true);
    Json one = choice(request, codec, completion, i, true);
    add_finish(one, completion.rows[i]);
    chunk["choices"] = Json::array({std::move(one)});
    if (request.chat != nullptr && request.return_token_ids)
      chunk["prompt_token_ids"] = completion.prompts.at(0);
    events += event(chunk);
  }
  if (request.include_usage) {
    Json last = head(request, completion, true);
    last["choices"] = Json::array();
    last["usage"] = usage(completion);
    events += event(last);
  }
  return events + "data: [DONE]\n\n";
}

std::string model_json(const ListedModel& model, std::int64_t created_s) {
  return dump(listed(model, created_s));
}

std::string model_list_json(const std::vector<ListedModel>& models, std::int64_t created_s) {
  Json data = Json::array();
  for (const ListedModel& model : models) data.push_back(listed(model, created_s));
  return dump({{"object", "list"}, {"data", std::move(data)}});
}

std::string tokenize_json(const Tokens& tokens, std::uint32_t max_model_len,
                          const TextCodec* with_texts) {
  Json document{{"count", tokens.size()}, {"max_model_len", max_model_len}, {"tokens", tokens}};
  if (with_texts != nullptr) {
    Json texts = Json::array();
    for (const std::int32_t id : tokens) texts.push_back(with_texts->decode({id}, false));
    document["token_strs"] = std::move(texts);
  }
  return dump(document);
}

std::string detokenize_json(const std::string& text) { return dump(Json{{"prompt", text}}); }

}  // namespace plexrl::http
