// SPDX-License-Identifier: Apache-2.0
#include "cli/train/tokenizer.h"

#include <nlohmann/json.hpp>

namespace plexrl::cli {
namespace {

constexpr std::size_t kMaxVocabulary = 1U << 20;
constexpr const char* kDefaultStop = ";";

std::size_t code_point_bytes(unsigned char first) {
  if (first < 0x80) return 1;
  if ((first & 0xE0) == 0xC0) return 2;
  if ((first & 0xF0) == 0xE0) return 3;
  return (first & 0xF8) == 0xF0 ? 4 : 0;
}

// Cuts UTF-8 into code points.
Result<std::vector<std::string>> split(std::string_view text) {
  std::vector<std::string> characters;
  while (!text.empty()) {
    const std::size_t bytes = code_point_bytes(static_cast<unsigned char>(text.front()));
    if (bytes == 0 || bytes > text.size())
      return error(Code::INVALID_ARGUMENT, "the text is not UTF-8 (byte 0x%02x)",
                   static_cast<unsigned>(static_cast<unsigned char>(text.front())));
    characters.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return characters;
}

}  // namespace

Result<CharTokenizer> CharTokenizer::parse(std::string_view json) {
  const auto document = nlohmann::json::parse(json, nullptr, false);
  if (!document.is_object() || !document.contains("type") || document["type"] != "char")
    return error(Code::INVALID_ARGUMENT, "tokenizer: the service's description is not understood");
  if (!document.contains("alphabet") || !document["alphabet"].is_string())
    return error(Code::INVALID_ARGUMENT, "tokenizer: 'alphabet' is missing");
  CharTokenizer tokenizer;
  PLEXRL_ASSIGN(tokenizer.characters_, split(document["alphabet"].get<std::string>()));
  if (tokenizer.characters_.empty() || tokenizer.characters_.size() > kMaxVocabulary)
    return error(Code::INVALID_ARGUMENT, "tokenizer: an alphabet of %zu characters",
                 tokenizer.characters_.size());
  for (const std::string& character : tokenizer.characters_)
    if (!tokenizer.ids_.emplace(character, static_cast<std::int32_t>(tokenizer.ids_.size())).second)
      return error(Code::INVALID_ARGUMENT, "tokenizer: '%s' is twice in the alphabet",
                   character.c_str());
  return tokenizer;
}

Result<Tokens> CharTokenizer::encode(std::string_view text) const {
  PLEXRL_ASSIGN(const auto characters, split(text));
  Tokens tokens;
  tokens.reserve(characters.size());
  for (const std::string& character : characters) {
    const auto found = ids_.find(character);
    if (found == ids_.end())
      return error(Code::INVALID_ARGUMENT, "the model's alphabet does not have '%s'",
                   character.c_str());
    tokens.push_back(found->second);
  }
  return tokens;
}

std::string CharTokenizer::decode(const Tokens& tokens) const {
  std::string text;
  for (const std::int32_t token : tokens)
    text += token >= 0 && static_cast<std::size_t>(token) < characters_.size()
                ? characters_[static_cast<std::size_t>(token)]
                : "\xEF\xBF\xBD";
  return text;
}

Result<Tokens> CharTokenizer::stop_tokens(const std::string& text) const {
  const std::string& stop = text.empty() ? kDefaultStop : text;
  const auto tokens = encode(stop);
  if (!tokens.has_value()) return tokens.error().within("--stop '" + stop + "'");
  if (tokens->size() != 1)
    return error(Code::INVALID_ARGUMENT, "--stop '%s': write exactly one character", stop.c_str());
  return tokens;
}

}  // namespace plexrl::cli
