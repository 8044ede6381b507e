// SPDX-License-Identifier: Apache-2.0
#include "cli/train/bpe_tokenizer.h"

#include <algorithm>

namespace plexrl::cli {
namespace {

using nlohmann::json;

Status check_size(const json& description, std::size_t tokens) {
  const auto found = description.find("vocab_size");
  if (found == description.end() || !found->is_number_unsigned())
    return error(Code::INVALID_ARGUMENT, "tokenizer: 'vocab_size' is missing");
  if (tokens <= found->get<std::uint64_t>()) return {};
  return error(Code::INVALID_ARGUMENT,
               "tokenizer: tokenizer.json has %zu tokens, the model %llu: they do not belong "
               "together",
               tokens, static_cast<unsigned long long>(found->get<std::uint64_t>()));
}

Result<Tokens> end_tokens(const json& description, std::size_t tokens) {
  Tokens ends;
  const auto found = description.find("eos_token_ids");
  if (found == description.end() || !found->is_array())
    return error(Code::INVALID_ARGUMENT, "tokenizer: 'eos_token_ids' is missing");
  for (const json& id : *found) {
    const bool known = id.is_number_unsigned() && id.get<std::uint64_t>() < tokens;
    if (!known)
      return error(Code::INVALID_ARGUMENT, "tokenizer: end token %s is not in tokenizer.json",
                   id.dump().c_str());
    ends.push_back(id.get<std::int32_t>());
  }
  return ends;
}

// What is missing or of another type is not there: only --chat needs it.
ChatSource chat_source(const json& description) {
  ChatSource source;
  if (const auto text = description.find("chat_template");
      text != description.end() && text->is_string())
    source.text = text->get<std::string>();
  const auto tokens = description.find("tokens");
  if (tokens == description.end() || !tokens->is_object()) return source;
  for (const auto& [name, token] : tokens->items())
    if (token.is_string()) source.tokens[name] = token.get<std::string>();
  return source;
}

}  // namespace

Result<std::unique_ptr<TextTokenizer>> BpeTokenizer::parse(const json& description) {
  if (!description.is_object() || !description.contains("tokenizer"))
    return error(Code::INVALID_ARGUMENT, "tokenizer: 'tokenizer' is missing");
  auto made = std::make_unique<BpeTokenizer>();
  const std::string text = description["tokenizer"].dump();
  PLEXRL_ASSIGN(made->tokenizer_, tokenizer::Tokenizer::from_json(text));
  const std::size_t tokens = made->tokenizer_->vocabulary();
  PLEXRL_TRY(check_size(description, tokens));
  PLEXRL_ASSIGN(made->ends_, end_tokens(description, tokens));
  made->chat_ = chat_source(description);
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
