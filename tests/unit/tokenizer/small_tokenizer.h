// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json of all bytes (id = byte) and the merges that a test wants.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tokenizer/byte_alphabet.h"

namespace plexrl::tokenizer {

inline nlohmann::json small_tokenizer(
    const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    const std::string a = to_byte_alphabet(left);
    const std::string b = to_byte_alphabet(right);
    vocab.emplace(a + b, vocab.size());
    pairs.push_back({a, b});
  }
  return {
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

inline void add_token(nlohmann::json* document, int id, const std::string& text,
                      const nlohmann::json& flags = nlohmann::json::object()) {
  nlohmann::json token = {{"id", id}, {"content", text}, {"special", true}};
  token.update(flags);
  (*document)["added_tokens"].push_back(token);
}

}  // namespace plexrl::tokenizer
