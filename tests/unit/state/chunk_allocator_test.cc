// SPDX-License-Identifier: Apache-2.0
#include "state/chunk_allocator.h"

#include <gtest/gtest.h>

namespace plexrl::state {
namespace {

TEST(ChunkAllocator, HandsOutTheLowestFreeChunks) {
  ChunkAllocator pool(6);
  EXPECT_EQ(pool.allocate(2), (Chunks{0, 1}));
  EXPECT_EQ(pool.allocate(2), (Chunks{2, 3}));
  pool.give_back({1});
  EXPECT_EQ(pool.allocate(2), (Chunks{1, 4}));
  EXPECT_EQ(pool.free(), 1u);
}

TEST(ChunkAllocator, AllOrNothing) {
  ChunkAllocator pool(3);
  EXPECT_EQ(pool.allocate(4), std::nullopt);
  EXPECT_EQ(pool.free(), 3u);
  EXPECT_EQ(pool.allocate(3), (Chunks{0, 1, 2}));
  EXPECT_EQ(pool.allocate(0), (Chunks{}));
}

TEST(ChunkAllocator, TakeTakesAllOrNothing) {
  ChunkAllocator pool(4);
  EXPECT_TRUE(pool.take({3, 1}));
  EXPECT_FALSE(pool.take({0, 1})) << "taken";
  EXPECT_FALSE(pool.take({0, 4})) << "out of range";
  EXPECT_FALSE(pool.take({0, 0})) << "twice";
  EXPECT_EQ(pool.allocate(2), (Chunks{0, 2}));
}

TEST(ChunkAllocatorDeathTest, GivingBackTwiceAborts) {
  ChunkAllocator pool(2);
  ASSERT_TRUE(pool.allocate(1));
  pool.give_back({0});
  EXPECT_DEATH(pool.give_back({0}), "not taken");
  EXPECT_DEATH(pool.give_back({9}), "not taken");
}

}  // namespace
}  // namespace plexrl::state
