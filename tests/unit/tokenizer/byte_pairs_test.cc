// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_pairs.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace plexrl::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

// The definition, word for word: slow.
Ids by_definition(const std::vector<std::string>& words, const std::vector<Merge>& merges,
                  std::string_view text) {
  std::map<std::pair<TokenId, TokenId>, std::pair<std::size_t, TokenId>> ranks;
  for (std::size_t rank = 0; rank < merges.size(); ++rank)
    ranks[{merges[rank].left, merges[rank].right}] = {rank, merges[rank].whole};
  Ids ids;
  for (const char byte : text)
    for (std::size_t id = 0; id < words.size(); ++id)
      if (words[id] == std::string(1, byte)) ids.push_back(static_cast<TokenId>(id));
  for (;;) {
    std::size_t best = SIZE_MAX;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second.first < best) best = found->second.first, at = i;
    }
    if (best == SIZE_MAX) return ids;
    ids[at] = merges[best].whole;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

Ids encode(const BytePairs& pairs, std::string_view word) {
  Ids ids;
  pairs.encode(word, &ids);
  return ids;
}

TEST(BytePairs, RandomMergesGiveWhatTheDefinitionGives) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> words = {"a", "b", "c"};
    std::vector<Merge> merges;
    for (int i = 0; i < 20; ++i) {
      const auto left = static_cast<TokenId>(random() % words.size());
      const auto right = static_cast<TokenId>(random() % words.size());
      merges.push_back({left, right, static_cast<TokenId>(words.size())});
      words.push_back(words[static_cast<std::size_t>(left)] +
                      words[static_cast<std::size_t>(right)]);
    }
    const BytePairs pairs(words, merges, false, kNoToken);
    for (int text = 0; text < 20; ++text) {
      std::string word;
      for (std::size_t n = random() % 40; n > 0; --n)
        word.push_back(static_cast<char>('a' + random() % 3));
      ASSERT_EQ(encode(pairs, word), by_definition(words, merges, word)) << word;
    }
  }
}

TEST(BytePairs, WholeWordsAreNotTakenApart) {
  const std::vector<std::string> words = {"a", "b", "ab", "aba"};
  const std::vector<Merge> merges = {{0, 1, 2}};
  EXPECT_EQ(encode(BytePairs(words, merges, false, kNoToken), "aba"), (Ids{2, 0}));
  EXPECT_EQ(encode(BytePairs(words, merges, true, kNoToken), "aba"), (Ids{3}));
}

TEST(BytePairs, BytesWithoutATokenAreTheUnknownOneOrLeftOut) {
  const std::vector<std::string> words = {"a", "b", "ab", ""};
  const std::vector<Merge> merges = {{0, 1, 2}};
  EXPECT_EQ(encode(BytePairs(words, merges, false, 3), "axb"), (Ids{0, 3, 1}));
  EXPECT_EQ(encode(BytePairs(words, merges, false, kNoToken), "axb"), (Ids{2}));
}

// Would take hours if each merge looked at the whole word.
TEST(BytePairs, AWordOfFourMegabytes) {
  const std::vector<std::string> words = {"a", "aa", "aaaa", "aaaaaaaa"};
  const std::vector<Merge> merges = {{0, 0, 1}, {1, 1, 2}, {2, 2, 3}};
  const Ids ids = encode(BytePairs(words, merges, false, kNoToken), std::string(4U << 20, 'a'));
  EXPECT_EQ(ids, Ids((4U << 20) / 8, 3));
}

}  // namespace
}  // namespace plexrl::tokenizer
