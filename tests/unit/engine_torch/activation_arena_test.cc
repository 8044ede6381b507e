// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/activation_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "held_model.h"

namespace plexrl::model {
namespace {

std::unique_ptr<ActivationArena> arena_of(std::size_t bytes) {
  return std::move(ActivationArena::create(bytes)).value();
}

TEST(ActivationArena, RoundsUpToPagesAndRefusesNothing) {
  EXPECT_EQ(arena_of(1)->stats().capacity_bytes, 4096U);
  EXPECT_EQ(ActivationArena::create(0).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(ActivationArena::create(SIZE_MAX).error().code(), Code::NO_CAPACITY);
}

TEST(ActivationArena, BlocksAreAlignedAndApart) {
  const auto arena = arena_of(1 << 16);
  auto* a = static_cast<char*>(arena->allocate(1));
  auto* b = static_cast<char*>(arena->allocate(100));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0U);
  EXPECT_EQ(b - a, 64);
  EXPECT_EQ(arena->stats().used_bytes, 64U + 128U);
}

TEST(ActivationArena, OverTheCapIsNullAndCounted) {
  const auto arena = arena_of(8192);
  EXPECT_NE(arena->allocate(8192), nullptr);
  EXPECT_EQ(arena->allocate(1), nullptr);
  EXPECT_EQ(arena->allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(arena->stats().refused, 2U);
}

TEST(ActivationArena, FreedNeighboursMergeInAnyOrder) {
  const auto arena = arena_of(4096 * 4);
  for (const bool reverse : {false, true}) {
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(arena->allocate(4096));
    if (reverse) std::reverse(blocks.begin(), blocks.end());
    for (void* block : blocks) arena->release(block);
    void* whole = arena->allocate(4096 * 4);
    EXPECT_NE(whole, nullptr);
    arena->release(whole);
  }
  EXPECT_EQ(arena->stats().peak_bytes, 4096U * 4);
}

TEST(ActivationArena, RandomUseNeverOverlapsAndAllComesBack) {
  const auto arena = arena_of(1 << 20);
  std::mt19937 random(3);
  std::vector<std::pair<unsigned char*, std::size_t>> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.empty() || random() % 2 == 0) {
      const std::size_t bytes = 1 + random() % 5000;
      auto* p = static_cast<unsigned char*>(arena->allocate(bytes));
      if (p == nullptr) continue;
      std::memset(p, static_cast<int>(bytes % 251), bytes);
      live.emplace_back(p, bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      const auto [p, bytes] = live.back();
      ASSERT_TRUE(std::all_of(p, p + bytes, [n = bytes % 251](unsigned char c) { return c == n; }));
      arena->release(p);
      live.pop_back();
    }
  }
  for (const auto& [p, bytes] : live) arena->release(p);
  EXPECT_EQ(arena->stats().used_bytes, 0U);
  EXPECT_NE(arena->allocate(1 << 20), nullptr);
}

TEST(ActivationArena, ZeroUsedWipesWhatIsFreeAndKeepsWhatLives) {
  const auto arena = arena_of(1 << 16);
  auto* secret = static_cast<unsigned char*>(arena->allocate(1000));
  auto* kept = static_cast<unsigned char*>(arena->allocate(1000));
  auto* later = static_cast<unsigned char*>(arena->allocate(1000));
  for (unsigned char* p : {secret, kept, later}) std::memset(p, 0xAB, 1000);
  arena->release(secret);
  arena->release(later);
  arena->zero_used();
  EXPECT_TRUE(std::all_of(secret, secret + 1000, [](unsigned char c) { return c == 0; }));
  EXPECT_TRUE(std::all_of(later, later + 1000, [](unsigned char c) { return c == 0; }));
  EXPECT_TRUE(std::all_of(kept, kept + 1000, [](unsigned char c) { return c == 0xAB; }));
  arena->release(kept);
  arena->zero_used();
  EXPECT_TRUE(std::all_of(kept, kept + 1000, [](unsigned char c) { return c == 0; }));
}

TEST(ActivationArenaDeathTest, ForeignPointerAborts) {
  const auto arena = arena_of(4096);
  EXPECT_DEATH(arena->release(&*arena), "not in use");
}

// What the next tenant can be given of an arena: everything that is free, handed out and not
// touched. Given back at the end.
class FreeMemory {
 public:
  explicit FreeMemory(ActivationArena& arena) : arena_(arena) {
    for (std::size_t bytes = arena.stats().capacity_bytes; bytes >= 64; bytes /= 2)
      while (auto* const block = static_cast<float*>(arena.allocate(bytes)))
        blocks_.emplace_back(block, bytes / sizeof(float));
  }
  ~FreeMemory() {
    for (const auto& block : blocks_) arena_.release(block.data());
  }
  FreeMemory(const FreeMemory&) = delete;
  FreeMemory& operator=(const FreeMemory&) = delete;

  [[nodiscard]] std::size_t floats() const {
    std::size_t sum = 0;
    for (const auto& block : blocks_) sum += block.size();
    return sum;
  }
  [[nodiscard]] std::ptrdiff_t count(float wanted) const {
    std::ptrdiff_t sum = 0;
    for (const auto& block : blocks_) sum += std::count(block.begin(), block.end(), wanted);
    return sum;
  }

 private:
  ActivationArena& arena_;
  std::vector<std::span<float>> blocks_;
};

TEST(ActivationArena, NothingOfAnOpIsLeftForTheNextTenant) {
  ActivationArena& arena = *ActivationArena::installed();
  HeldModel model(layout_of(tiny_config(), wire::TrainMode::Full));
  wire::ForwardBackwardArgsT args;
  args.loss = wire::LossKind::CrossEntropy;
  args.data.push_back(std::make_unique<wire::DatumT>());
  args.data[0]->tokens = args.data[0]->target_tokens = {1, 2, 3, 4};
  args.data[0]->weights.assign(4, 1234.5F);
  const auto training = args_union(std::move(args));
  ASSERT_TRUE(run_op(model, training));
  arena.zero_used();
  {
    const FreeMemory next(arena);
    EXPECT_GT(next.floats(), 0U);
    EXPECT_EQ(next.count(0.0F), static_cast<std::ptrdiff_t>(next.floats()));
  }
  ASSERT_TRUE(run_op(model, training));
  {
    const FreeMemory before(arena);  // the op does leave something behind
    EXPECT_LT(before.count(0.0F), static_cast<std::ptrdiff_t>(before.floats()));
  }
  arena.zero_used();
}

}  // namespace
}  // namespace plexrl::model
