// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/activation_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

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

}  // namespace
}  // namespace plexrl::model
