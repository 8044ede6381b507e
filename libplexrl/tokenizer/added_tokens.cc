// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <unicode/uchar.h>

#include "tokenizer/utf8.h"

namespace plexrl::tokenizer {
namespace {

UChar32 first_of(std::string_view text) { return static_cast<UChar32>(utf8_step(text).code_point); }

std::size_t last_bytes(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() &&
         (static_cast<unsigned char>(text[text.size() - bytes]) & 0xC0U) == 0x80U)
    ++bytes;
  return bytes;
}

// What \w is in regular expressions (Unicode technical standard 18, annex C).
bool is_word(UChar32 c) {
  constexpr std::uint32_t kMarksAndNumbers = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) != 0 ||
         (U_GET_GC_MASK(c) & kMarksAndNumbers) != 0 ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) != 0;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(first_of(text.substr(text.size() - last_bytes(text))));
}

bool begins_with_word(std::string_view text) { return !text.empty() && is_word(first_of(text)); }

// Bytes of white space at the end of `text`.
std::size_t spaces_at_end(std::string_view text) {
  const std::size_t all = text.size();
  while (!text.empty()) {
    const std::size_t bytes = last_bytes(text);
    if (u_isUWhiteSpace(first_of(text.substr(text.size() - bytes))) == 0) break;
    text.remove_suffix(bytes);
  }
  return all - text.size();
}

std::size_t spaces_at_begin(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (u_isUWhiteSpace(static_cast<UChar32>(step.code_point)) == 0) break;
    at += step.bytes;
  }
  return at;
}

}  // namespace

Result<AddedTokens> AddedTokens::build(std::vector<AddedToken> tokens) {
  AddedTokens built;
  built.tokens_ = std::move(tokens);
  built.nodes_.resize(1);
  for (std::size_t i = 0; i < built.tokens_.size(); ++i) {
    const std::string& text = built.tokens_[i].text;
    if (text.empty() || text.size() > kMaxBytes)
      return error(Code::INVALID_ARGUMENT,
                   "tokenizer: added token %d has %zu bytes, must have 1 to %zu",
                   built.tokens_[i].id, text.size(), kMaxBytes);
    built.first_.at(static_cast<unsigned char>(text.front())) = true;
    std::uint32_t node = 0;
    for (const char byte : text) {
      const auto fresh = static_cast<std::uint32_t>(built.nodes_.size());
      const auto [found, added] = built.nodes_[node].next.try_emplace(byte, fresh);
      node = found->second;
      if (added) built.nodes_.emplace_back();
    }
    built.nodes_[node].token = static_cast<std::int32_t>(i);
  }
  return built;
}

const AddedToken* AddedTokens::longest_at(std::string_view text, bool special,
                                          std::string_view given) const {
  const AddedToken* longest = nullptr;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    special = special && (given.empty() || given[i] == 0);
    const auto found = nodes_[node].next.find(text[i]);
    if (found == nodes_[node].next.end()) break;
    node = found->second;
    if (nodes_[node].token < 0) continue;
    const AddedToken& token = tokens_[static_cast<std::size_t>(nodes_[node].token)];
    if (special || !token.special) longest = &token;
  }
  return longest;
}

void AddedTokens::split(std::string_view text, bool special, std::string_view given,
                        std::vector<Piece>* pieces) const {
  std::size_t begin = 0;  // of what is not in a piece yet
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* const token =
        first_.at(static_cast<unsigned char>(text[at]))
            ? longest_at(text.substr(at), special, given.substr(given.empty() ? 0 : at))
            : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t from = at;
    std::size_t to = at + token->text.size();
    at = to;
    if (token->single_word &&
        (ends_with_word(text.substr(0, from)) || begins_with_word(text.substr(to))))
      continue;
    if (token->lstrip) from -= spaces_at_end(text.substr(begin, from - begin));
    if (token->rstrip) to += spaces_at_begin(text.substr(to));
    at = to;
    if (begin < from) pieces->push_back({text.substr(begin, from - begin), nullptr});
    pieces->push_back({text.substr(from, to - from), token});
    begin = to;
  }
  if (begin < text.size()) pieces->push_back({text.substr(begin), nullptr});
}

}  // namespace plexrl::tokenizer
