// SPDX-License-Identifier: Apache-2.0
#include "cli/train/bpe_tokenizer.h"

#include <algorithm>

#include "models/tokenizer_parts.h"

namespace plexrl::cli {

using nlohmann::json;

Result<std::unique_ptr<TextTokenizer>> BpeTokenizer::parse(const json& description) {
  PLEXRL_ASSIGN(model::TokenizerParts parts, model::read_tokenizer_parts(description));
  auto made = std::make_unique<BpeTokenizer>();
  made->tokenizer_ = std::move(parts.tokenizer);
  made->ends_ = std::move(parts.ends);
  made->chat_ = {std::move(parts.chat_template), std::move(parts.tokens)};
  return std::unique_ptr<TextTokenizer>(std::move(made));
}

Result<Tokens> BpeTokenizer::encode(std::string_view text) const {
  return tokenizer_->encode(text, {.add_special = false, .parse_special = false});
}

Result<Tokens> BpeTokenizer::encode_prompt(std::string_view text) const {
  return tokenizer_->encode(text, {.add_special = true, .parse_special = false});
}

Result<Tokens> BpeTokenizer::encode_marked(std::string_view text, std::string_view given) const {
  return tokenizer_->encode_marked(text, given);
}

std::string BpeTokenizer::decode(const Tokens& tokens) const { return tokenizer_->decode(tokens); }

Result<Tokens> BpeTokenizer::stop_tokens(const std::string& text) const {
  Tokens stops;
  if (const auto added = tokenizer_->id_of_added(text); added.has_value()) {
    stops.push_back(*added);
  } else if (!text.empty()) {
    PLEXRL_ASSIGN(stops, encode(text));
    if (stops.size() != 1)
      return error(Code::INVALID_ARGUMENT,
                   "--stop '%s': %zu tokens of this model; write one, such as <|im_end|>",
                   text.c_str(), stops.size());
  }
  for (const std::int32_t end : ends_)
    if (std::find(stops.begin(), stops.end(), end) == stops.end()) stops.push_back(end);
  if (!stops.empty()) return stops;
  return error(Code::INVALID_ARGUMENT,
               "the model's files name no token that ends an answer (eos_token_id): give --stop");
}

// Here and not with CharTokenizer, so that one can be had without ICU and PCRE2.
Result<std::unique_ptr<TextTokenizer>> make_tokenizer(std::string_view description) {
  const auto document = json::parse(description, nullptr, false);
  const auto type = document.is_object() ? document.value("type", json()) : json();
  if (type == "tokenizer.json") return BpeTokenizer::parse(document);
  if (type == "char") {
    PLEXRL_ASSIGN(auto made, CharTokenizer::parse(description));
    return std::unique_ptr<TextTokenizer>(std::make_unique<CharTokenizer>(std::move(made)));
  }
  if (type.is_string())
    return error(Code::UNSUPPORTED,
                 "tokenizer: the base has one of type '%.40s'; known are 'char' and "
                 "'tokenizer.json'",
                 type.get<std::string>().c_str());
  return error(Code::INVALID_ARGUMENT,
               "tokenizer: the base has no tokenizer.json and no plexrl_tokenizer.json that is "
               "understood");
}

}  // namespace plexrl::cli
