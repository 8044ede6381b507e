// SPDX-License-Identifier: Apache-2.0
// How data are cut into micro-batches, and which packed token is scored for whom.
#include "engine_torch/training_batch.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "held_model.h"

namespace plexrl::model {
namespace {

// Data that begin with the first `prefix` tokens of their prompt and go on by themselves.
struct Answers {
  int prompt = 0;
  std::size_t prefix = 0;
  std::vector<std::size_t> lengths;
};

std::vector<Datum> data_of(const std::vector<Answers>& all) {
  std::vector<Datum> data;
  std::int32_t own = 1000;
  for (const Answers& answers : all)
    for (const std::size_t length : answers.lengths) {
      Datum datum;
      for (std::size_t i = 0; i < length; ++i)
        datum.tokens.push_back(
            i < answers.prefix ? answers.prompt * 100 + static_cast<std::int32_t>(i) : own++);
      datum.targets = datum.tokens;
      data.push_back(std::move(datum));
    }
  return data;
}

// Every position of every datum exactly once, by a packed token that is its own token; nothing
// behind the end, and no batch above the limit that holds more than one datum.
void expect_complete(const std::vector<MicroBatch>& batches, const std::vector<Datum>& data) {
  std::set<std::pair<std::size_t, std::size_t>> seen;
  for (const MicroBatch& batch : batches) {
    ASSERT_EQ(batch.shape.rows(), static_cast<std::int64_t>(batch.rows.size()));
    const std::vector<std::int64_t> tokens = packed_tokens(batch, data);
    ASSERT_EQ(static_cast<std::int64_t>(tokens.size()), batch.shape.tokens());
    EXPECT_TRUE(batch.rows.size() == 1 || batch.shape.tokens() <= 1024);
    std::int64_t last = -1;
    for (const PackedPosition& at : packed_positions(batch, data)) {
      EXPECT_GT(at.token, last);
      last = at.token;
      for (std::size_t row = at.first_row; row < at.first_row + at.row_count; ++row) {
        const std::size_t d = batch.rows.at(row);
        EXPECT_EQ(tokens.at(static_cast<std::size_t>(at.token)), data[d].tokens.at(at.index));
        EXPECT_TRUE(seen.emplace(d, at.index).second);
      }
    }
    EXPECT_LT(last, batch.shape.tokens());
  }
  std::size_t positions = 0;
  for (const Datum& datum : data) positions += datum.tokens.size();
  EXPECT_EQ(seen.size(), positions);
}

using Sizes = std::vector<std::int64_t>;

TEST(TrainingBatch, AnswersToOnePromptShareIt) {
  const auto data = data_of({{1, 20, {25, 23, 30}}});
  const auto batches = split_micro_batches(tiny_config(), data);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].shape.prefix, 20);
  EXPECT_EQ(batches[0].shape.length, 10);
  EXPECT_EQ(batches[0].shape.group_sizes, Sizes({3}));
  EXPECT_EQ(batches[0].shape.tokens(), 50);
  expect_complete(batches, data);
}

TEST(TrainingBatch, PromptsOfOneLengthGoTogether) {
  const auto data = data_of({{1, 20, {25, 23}}, {2, 20, {22, 28, 24}}, {3, 21, {30, 24}}});
  const auto batches = split_micro_batches(tiny_config(), data);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].shape.group_sizes, Sizes({2, 3}));
  EXPECT_EQ(batches[0].shape.length, 8);
  EXPECT_EQ(batches[1].shape.prefix, 21);
  expect_complete(batches, data);
}

// All begin alike (a system prompt), the answers to one prompt more so.
TEST(TrainingBatch, TheLongerPrefixIsKept) {
  auto data = data_of({{1, 30, {34, 35, 36}}, {2, 30, {33, 37, 38}}});
  for (Datum& datum : data) std::iota(datum.tokens.begin(), datum.tokens.begin() + 12, 0);
  const auto batches = split_micro_batches(tiny_config(), data);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].shape.prefix, 30);
  EXPECT_EQ(batches[0].shape.group_sizes, Sizes({3, 3}));
  expect_complete(batches, data);
}

TEST(TrainingBatch, NothingIsSharedThatIsShortOrTheWholeDatum) {
  const auto apart = data_of({{1, 7, {20, 20}}});
  const auto batches = split_micro_batches(tiny_config(), apart);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].shape.prefix, 0);
  EXPECT_EQ(batches[0].shape.group_sizes, Sizes({2}));
  // The same twice: each keeps its last token.
  const auto twins = data_of({{1, 20, {20, 20}}});
  const auto shared = split_micro_batches(tiny_config(), twins);
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_EQ(shared[0].shape.prefix, 19);
  EXPECT_EQ(shared[0].shape.length, 1);
  expect_complete(shared, twins);
}

TEST(TrainingBatch, LargeGroupsAreCutWhereTheyFit) {
  const auto data = data_of({{1, 300, std::vector<std::size_t>(10, 500)}});
  const auto batches = split_micro_batches(tiny_config(), data);
  ASSERT_EQ(batches.size(), 4U);  // 300 + 3 * 200 tokens and less
  for (const MicroBatch& batch : batches) EXPECT_LE(batch.shape.tokens(), 1024);
  expect_complete(batches, data);
  const auto long_ones = data_of({{1, 900, {2000, 2000}}});
  const auto alone = split_micro_batches(tiny_config(), long_ones);
  ASSERT_EQ(alone.size(), 2U);
  EXPECT_EQ(alone[0].shape.tokens(), 2000);
  expect_complete(alone, long_ones);
}

TEST(TrainingBatch, WithoutSharingNothingIsPackedOtherwise) {
  const auto data = data_of({{1, 0, {5, 9, 3}}, {2, 0, std::vector<std::size_t>(200, 13)}});
  const auto batches = split_micro_batches(tiny_config(), data);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[0].shape.group_sizes, Sizes({78}));  // 78 * 13 <= 1024
  EXPECT_EQ(batches[1].shape.group_sizes, Sizes({78}));
  expect_complete(batches, data);
}

// Minibatches come shuffled; what begins like nothing else keeps its place.
TEST(TrainingBatch, TheOrderOfTheDataDoesNotMatterForSharing) {
  auto data = data_of({{1, 20, {25, 23}}, {5, 0, {12}}, {2, 20, {22, 28}}});
  std::swap(data[1], data[3]);  // prompts 1 2 5 1 2
  std::swap(data[2], data[0]);  // prompts 5 2 1 1 2
  const auto batches = split_micro_batches(tiny_config(), data);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].rows, std::vector<std::size_t>({0}));
  EXPECT_EQ(batches[0].shape.prefix, 0);
  EXPECT_EQ(std::set<std::size_t>(batches[1].rows.begin(), batches[1].rows.begin() + 2),
            std::set<std::size_t>({1, 4}));
  EXPECT_EQ(batches[1].shape.group_sizes, Sizes({2, 2}));
  expect_complete(batches, data);
}

TEST(TrainingBatch, AnyDataComeOutWhole) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<Answers> all(1 + random() % 8);
    for (Answers& answers : all) {
      answers.prompt = static_cast<int>(random() % 3);
      answers.prefix = random() % 40;
      answers.lengths.resize(1 + random() % 12);
      for (std::size_t& length : answers.lengths) length = 1 + random() % 300;
    }
    const auto data = data_of(all);
    expect_complete(split_micro_batches(demo_config(), data), data);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace plexrl::model
