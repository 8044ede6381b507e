// SPDX-License-Identifier: Apache-2.0
#include "store/memfd_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "base/unique_fd.h"

namespace plexrl::store {
namespace {

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:") != line.npos;
  return count;
}

// Chunk n of the pool is filled with n.
UniqueFd pool_of(std::size_t chunk_bytes, std::uint32_t chunks, unsigned flags = 0) {
  UniqueFd pool(::memfd_create("plexrl-test", MFD_CLOEXEC | flags));
  const std::size_t bytes = chunk_bytes * chunks;
  if (!pool || ::ftruncate(pool.get(), static_cast<off_t>(bytes)) != 0) return UniqueFd();
  void* const got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool.get(), 0);
  if (got == MAP_FAILED) return UniqueFd();
  for (std::uint32_t i = 0; i < chunks; ++i)
    std::memset(static_cast<char*>(got) + i * chunk_bytes, static_cast<int>(i), chunk_bytes);
  ::munmap(got, bytes);
  return pool;
}

TEST(MemfdMemory, ChunksAppearInTheOrderOfTheListAndGoAgain) {
  constexpr std::size_t kChunk = std::size_t{64} << 10;
  const UniqueFd pool = pool_of(kChunk, 40);
  std::vector<std::uint32_t> chunks;
  for (std::uint32_t i = 0; i < 20; ++i) chunks.push_back(i % 3 == 0 ? i : 39 - i);
  const std::size_t before = mappings();
  MemfdMemory memory(pool.get(), kChunk, chunks);
  const auto at = memory.map(kBlobChunkBytes, 4 * kChunk - 100, BlobMemory::Access::kRead);
  ASSERT_TRUE(at) << at.error().to_string();
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(std::to_integer<unsigned>((*at)[i * kChunk + 5]), chunks[16 + i]);
  EXPECT_GT(mappings(), before);
  memory.unmap(*at, 4 * kChunk - 100);
  EXPECT_EQ(mappings(), before);
}

TEST(MemfdMemory, WhatIsWrittenIsInThePool) {
  constexpr std::size_t kChunk = kBlobChunkBytes * 2;
  const UniqueFd pool = pool_of(kChunk, 4);
  MemfdMemory memory(pool.get(), kChunk, {3, 1});
  const auto at = memory.map(3 * kBlobChunkBytes, kBlobChunkBytes, BlobMemory::Access::kWrite);
  ASSERT_TRUE(at);
  (*at)[10] = std::byte{77};
  memory.unmap(*at, kBlobChunkBytes);
  char byte = 0;
  ASSERT_EQ(::pread(pool.get(), &byte, 1, kChunk + kBlobChunkBytes + 10), 1);
  EXPECT_EQ(byte, 77);
}

// With the padding, and before the memory is there.
TEST(MemfdMemory, TellsWhatIsAboutToBeWritten) {
  constexpr std::size_t kChunk = kBlobChunkBytes / 2;
  const UniqueFd pool = pool_of(kChunk, 6);
  std::vector<std::pair<std::uint32_t, std::size_t>> told;
  const auto note = [&](std::uint32_t chunk, std::size_t bytes) {
    told.emplace_back(chunk, bytes);
  };
  MemfdMemory memory(pool.get(), kChunk, {5, 4, 0, 1}, ChunkHooks{note, {}});
  const auto whole = memory.map(0, kBlobChunkBytes, BlobMemory::Access::kWrite);
  const auto last = memory.map(kBlobChunkBytes, kChunk + 5, BlobMemory::Access::kWrite);
  const auto read = memory.map(0, kBlobChunkBytes, BlobMemory::Access::kRead);
  ASSERT_TRUE(whole && last && read);
  const std::vector<std::pair<std::uint32_t, std::size_t>> expected = {
      {5, kChunk}, {4, kChunk}, {0, kChunk}, {1, kBlobAlignment}};
  EXPECT_EQ(told, expected);
  memory.unmap(*whole, kBlobChunkBytes);
  memory.unmap(*last, kChunk + 5);
  memory.unmap(*read, kBlobChunkBytes);
}

// The rest of the last chunk is the hook's to clean, wherever the pool is mapped.
TEST(MemfdMemory, TellsWhereTheBytesEnd) {
  constexpr std::size_t kChunk = kBlobChunkBytes * 2;
  const UniqueFd pool = pool_of(kChunk, 4);
  const auto clean = [&](std::uint32_t chunk, std::byte* data, std::size_t bytes) {
    EXPECT_EQ(chunk, 2U);
    EXPECT_EQ(bytes, 3U);
    std::memset(data + bytes, 0, kChunk - bytes);
  };
  const auto byte_at = [&](std::size_t offset) {
    unsigned char byte = 0xff;
    EXPECT_EQ(::pread(pool.get(), &byte, 1, static_cast<off_t>(2 * kChunk + offset)), 1);
    return int{byte};
  };
  MemfdMemory memory(pool.get(), kChunk, {3, 2}, ChunkHooks{{}, clean});
  ASSERT_TRUE(memory.filled(kChunk + 3).ok());
  EXPECT_EQ(byte_at(2), 2);
  EXPECT_EQ(byte_at(3), 0);
  EXPECT_EQ(byte_at(kChunk - 1), 0);
  void* const all = ::mmap(nullptr, 4 * kChunk, PROT_READ | PROT_WRITE, MAP_SHARED, pool.get(), 0);
  ASSERT_NE(all, MAP_FAILED);
  std::memset(static_cast<char*>(all) + 2 * kChunk, 7, kChunk);
  MemfdMemory there(pool.get(), kChunk, {3, 2}, ChunkHooks{{}, clean},
                    {std::shared_ptr<void>(), static_cast<std::byte*>(all)});
  ASSERT_TRUE(there.filled(kChunk + 3).ok());
  EXPECT_EQ(byte_at(2), 7);
  EXPECT_EQ(byte_at(3), 0);
  ::munmap(all, 4 * kChunk);
}

TEST(MemfdMemory, IsUsedWhereThePoolIsMapped) {
  constexpr std::size_t kChunk = std::size_t{64} << 10;
  const UniqueFd pool = pool_of(kChunk, 40);
  void* const all = ::mmap(nullptr, 40 * kChunk, PROT_READ | PROT_WRITE, MAP_SHARED, pool.get(), 0);
  ASSERT_NE(all, MAP_FAILED);
  auto* const base = static_cast<std::byte*>(all);
  std::vector<std::uint32_t> chunks;
  for (std::uint32_t i = 0; i < 32; ++i) chunks.push_back(i < 16 ? 20 + i : 31 - i);
  const std::size_t before = mappings();
  MemfdMemory memory(pool.get(), kChunk, chunks, {}, {std::shared_ptr<void>(), base});
  const auto together = memory.map(0, kBlobChunkBytes, BlobMemory::Access::kWrite);
  ASSERT_TRUE(together);
  EXPECT_EQ(*together, base + 20 * kChunk);
  EXPECT_EQ(mappings(), before);
  const auto apart = memory.map(kBlobChunkBytes, kBlobChunkBytes, BlobMemory::Access::kWrite);
  ASSERT_TRUE(apart) << apart.error().to_string();
  EXPECT_GT(mappings(), before) << "the chunks do not follow each other";
  EXPECT_EQ(std::to_integer<unsigned>((*apart)[kChunk]), 14U);
  memory.unmap(*apart, kBlobChunkBytes);
  memory.unmap(*together, kBlobChunkBytes);
  EXPECT_EQ(mappings(), before);
  EXPECT_EQ(std::to_integer<unsigned>(base[20 * kChunk]), 20U) << "it is still there";
  ::munmap(all, 40 * kChunk);
}

TEST(MemfdMemory, HugePagesAreMappedWhole) {
  constexpr std::size_t kChunk = kBlobChunkBytes * 2;
  const UniqueFd pool = pool_of(kChunk, 2, MFD_HUGETLB);
  if (!pool) GTEST_SKIP() << "no huge pages are reserved here (vm.nr_hugepages)";
  MemfdMemory memory(pool.get(), kChunk, {1, 0});
  const auto at = memory.map(kBlobChunkBytes, kBlobChunkBytes, BlobMemory::Access::kWrite);
  ASSERT_TRUE(at) << at.error().to_string();
  EXPECT_EQ((*at)[5], std::byte{1});
  memory.unmap(*at, kBlobChunkBytes);
  EXPECT_EQ(mappings(), 0u);
}

}  // namespace
}  // namespace plexrl::store
