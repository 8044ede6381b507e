// SPDX-License-Identifier: Apache-2.0
#include "models/tokenizer_parts.h"

namespace plexrl::model {
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

Result<std::vector<std::int32_t>> end_tokens(const json& description, std::size_t tokens) {
  std::vector<std::int32_t> ends;
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

// What is missing or of another type is not there: only chats need it.
void read_template(const json& description, TokenizerParts& parts) {
  if (const auto text = description.find("chat_template");
      text != description.end() && text->is_string())
    parts.chat_template = text->get<std::string>();
  const auto tokens = description.find("tokens");
  if (tokens == description.end() || !tokens->is_object()) return;
  for (const auto& [name, token] : tokens->items())
    if (token.is_string()) parts.tokens[name] = token.get<std::string>();
}

}  // namespace

Result<TokenizerParts> read_tokenizer_parts(const json& description) {
  if (!description.is_object() || !description.contains("tokenizer"))
    return error(Code::INVALID_ARGUMENT, "tokenizer: 'tokenizer' is missing");
  TokenizerParts parts;
  const std::string text = description["tokenizer"].dump();
  PLEXRL_ASSIGN(parts.tokenizer, tokenizer::Tokenizer::from_json(text));
  const std::size_t tokens = parts.tokenizer->vocabulary();
  PLEXRL_TRY(check_size(description, tokens));
  PLEXRL_ASSIGN(parts.ends, end_tokens(description, tokens));
  read_template(description, parts);
  return parts;
}

}  // namespace plexrl::model
