// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_pairs.h"

#include <queue>
#include <tuple>

namespace plexrl::tokenizer {
namespace {

std::uint64_t key_of(TokenId left, TokenId right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32U) |
         static_cast<std::uint32_t>(right);
}

constexpr std::size_t kNone = SIZE_MAX;

// A token of the word with its neighbours; `id` is kNoToken once it is part of the one before.
struct Symbol {
  TokenId id = kNoToken;
  std::size_t before = kNone, behind = kNone;
};

// A merge that was possible when it was queued.
struct Candidate {
  std::uint32_t rank = 0;
  std::size_t at = 0;
  TokenId left = kNoToken, right = kNoToken, whole = kNoToken;
  bool operator>(const Candidate& other) const {
    return std::tie(rank, at) > std::tie(other.rank, other.at);
  }
};

}  // namespace

BytePairs::BytePairs(std::vector<std::string> words, const std::vector<Merge>& merges,
                     bool whole_words, TokenId unknown)
    : unknown_(unknown) {
  of_byte_.fill(kNoToken);
  for (std::size_t id = 0; id < words.size(); ++id) {
    if (words[id].size() == 1)
      of_byte_.at(static_cast<unsigned char>(words[id].front())) = static_cast<TokenId>(id);
    if (whole_words && !words[id].empty())
      ids_.emplace(std::move(words[id]), static_cast<TokenId>(id));
  }
  steps_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank)
    steps_[key_of(merges[rank].left, merges[rank].right)] = {static_cast<std::uint32_t>(rank),
                                                             merges[rank].whole};
}

const BytePairs::Step* BytePairs::step_of(TokenId left, TokenId right) const {
  const auto found = steps_.find(key_of(left, right));
  return found == steps_.end() ? nullptr : &found->second;
}

void BytePairs::encode(std::string_view word, std::vector<TokenId>* out) const {
  if (const auto whole = ids_.empty() ? ids_.end() : ids_.find(std::string(word));
      whole != ids_.end()) {
    out->push_back(whole->second);
    return;
  }
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char byte : word) {
    TokenId id = of_byte_.at(static_cast<unsigned char>(byte));
    if (id == kNoToken) id = unknown_;
    if (id == kNoToken) continue;
    const std::size_t at = symbols.size();
    symbols.push_back({id, at == 0 ? kNone : at - 1, kNone});
    if (at > 0) symbols[at - 1].behind = at;
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::size_t at) {
    if (at == kNone || symbols[at].behind == kNone) return;
    const TokenId left = symbols[at].id;
    const TokenId right = symbols[symbols[at].behind].id;
    if (const Step* const step = step_of(left, right))
      queue.push({step->rank, at, left, right, step->whole});
  };
  for (std::size_t at = 0; at < symbols.size(); ++at) consider(at);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    // Another merge has changed the pair meanwhile.
    if (left.id != best.left || left.behind == kNone || symbols[left.behind].id != best.right)
      continue;
    Symbol& right = symbols[left.behind];
    left.id = best.whole;
    right.id = kNoToken;
    left.behind = right.behind;
    if (left.behind != kNone) symbols[left.behind].before = best.at;
    consider(left.before);
    consider(best.at);
  }
  for (const Symbol& symbol : symbols)
    if (symbol.id != kNoToken) out->push_back(symbol.id);
}

}  // namespace plexrl::tokenizer
