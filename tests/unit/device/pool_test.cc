// SPDX-License-Identifier: Apache-2.0
// Pools, the host pool's short mappings and the stream copies.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "device/chunk_pool.h"
#include "device/host_pool.h"
#include "device/huge_pages.h"
#include "device/stream_copy.h"

namespace plexrl::device {
namespace {

constexpr std::size_t kChunk = 16 * 1024;

UniqueFd make_pool(std::size_t chunks) { return create_cpu_pool("test", kChunk, chunks).value(); }

TEST(ChunkPool, IsSealedAndFullyAllocated) {
  const UniqueFd pool = make_pool(4);
  EXPECT_EQ(::fcntl(pool.get(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(::ftruncate(pool.get(), 0), 0);
  struct stat info {};
  ASSERT_EQ(::fstat(pool.get(), &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(4 * kChunk + marks_bytes(4)));
  EXPECT_GE(info.st_blocks * 512, static_cast<off_t>(4 * kChunk));
}

TEST(ChunkPool, ImpossibleSizesAreRefused) {
  EXPECT_EQ(create_cpu_pool("p", 1000, 4).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(create_cpu_pool("p", 0, 4).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(create_cpu_pool("p", kChunk, 0).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(create_cpu_pool("p", std::size_t{1} << 40, std::size_t{1} << 40).error().code(),
            Code::INVALID_ARGUMENT);
}

TEST(ChunkPool, AReceiverRefusesAnotherSize) {
  const UniqueFd pool = make_pool(4);
  EXPECT_TRUE(check_pool(pool.get(), kChunk, 4).ok());
  EXPECT_EQ(check_pool(pool.get(), kChunk, 5).code(), Code::INVALID_ARGUMENT);
}

TEST(ChunkPool, AReceiverRefusesAPoolThatCouldShrink) {
  const UniqueFd open_fd(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_fd.get(), 4 * kChunk), 0);
  EXPECT_EQ(check_pool(open_fd.get(), kChunk, 4).code(), Code::INVALID_ARGUMENT);
  EXPECT_FALSE(open_cpu_backend(UniqueFd(::dup(open_fd.get())), kChunk, 4).has_value());
  EXPECT_FALSE(HostPool::open(UniqueFd(::dup(open_fd.get())), kChunk, 4).has_value());
}

TEST(ChunkPool, AReceiverRefusesWhatIsNoDescriptor) {
  EXPECT_EQ(check_pool(-1, kChunk, 4).code(), Code::IO);
}

// The largest one that tests make: where the kernel has a huge page at all, it has four.
TEST(ChunkPool, IsInHugePages) {
  constexpr std::size_t kBytes = 4 * kHugePage;
  {
    const UniqueFd probe(::memfd_create("probe", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(probe.get(), kHugePage), 0);
    auto range = AddressRange::reserve(kHugePage).value();
    ASSERT_TRUE(range.map(0, probe.get(), 0, kHugePage, AddressRange::Access::kReadWrite).ok());
    gather_huge_pages(range.data(), kHugePage);
    if (bytes_in_huge_pages(range.data()) == 0) GTEST_SKIP() << "this kernel gives no huge pages";
  }
  const UniqueFd pool = create_cpu_pool("huge", kHugePage, 4).value();
  auto range = AddressRange::reserve(kBytes).value();
  ASSERT_TRUE(range.map(0, pool.get(), 0, kBytes, AddressRange::Access::kReadWrite).ok());
  EXPECT_EQ(bytes_in_huge_pages(range.data()), kBytes);
  EXPECT_EQ(bytes_in_huge_pages(range.data() + 1), 0U) << "no mapping begins there";
  EXPECT_EQ(AddressRange::pages_of(pool.get(), kBytes), AddressRange::Pages::kHuge);
}

TEST(AddressRange, WhatAPoolIsMadeOfIsFoundOut) {
  EXPECT_EQ(AddressRange::pages_of(-1, kHugePage), AddressRange::Pages::kUnknown);
  const UniqueFd plain(::memfd_create("plain", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(plain.get(), kHugePage), 0);
  EXPECT_EQ(AddressRange::pages_of(plain.get(), kHugePage / 2), AddressRange::Pages::kSmall);
  auto range = AddressRange::reserve(kHugePage).value();
  ASSERT_TRUE(range.map(0, plain.get(), 0, kHugePage, AddressRange::Access::kReadWrite).ok());
  if (bytes_in_huge_pages(range.data()) > 0) GTEST_SKIP() << "here every memfd has huge pages";
  EXPECT_EQ(AddressRange::pages_of(plain.get(), kHugePage), AddressRange::Pages::kSmall);
}

TEST(AddressRange, EveryByteIsThereHoweverItIsMapped) {
  const UniqueFd pool(::memfd_create("bytes", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(pool.get(), 3 * kHugePage), 0);
  for (off_t at = 0; at < static_cast<off_t>(3 * kHugePage); at += 4096)
    ASSERT_EQ(::pwrite(pool.get(), &at, sizeof at, at), static_cast<ssize_t>(sizeof at));
  auto range = AddressRange::reserve(2 * kHugePage).value();
  using Pages = AddressRange::Pages;
  for (const Pages pages : {Pages::kUnknown, Pages::kSmall, Pages::kHuge}) {
    ASSERT_TRUE(
        range.map(0, pool.get(), kHugePage, 2 * kHugePage, AddressRange::Access::kReadWrite, pages)
            .ok());
    for (std::size_t at = 0; at < 2 * kHugePage; at += 4096) {
      off_t found = 0;
      std::memcpy(&found, range.data() + at, sizeof found);
      ASSERT_EQ(found, static_cast<off_t>(kHugePage + at));
    }
    ASSERT_TRUE(range.clear().ok());
  }
}

TEST(AddressRange, LargeOnesBeginAtAHugePage) {
  for (const std::size_t bytes : {kHugePage, 3 * kHugePage + 4096}) {
    const auto range = AddressRange::reserve(bytes).value();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.data()) % kHugePage, 0U);
    EXPECT_EQ(range.bytes(), bytes);
  }
  EXPECT_FALSE(AddressRange::reserve(~std::size_t{0} - kHugePage).has_value());
}

TEST(ChunkPool, RunsJoinNeighbours) {
  const std::vector<ChunkIndex> chunks = {4, 5, 6, 2, 1, 2};
  EXPECT_EQ(run_at(chunks, 0).count, 3U);
  EXPECT_EQ(run_at(chunks, 3).count, 1U);
  EXPECT_EQ(run_at(chunks, 4).count, 2U);
  EXPECT_EQ(run_at(chunks, 4).first, 1U);
}

TEST(HostPool, MapsChunksInTheGivenOrder) {
  auto pool = HostPool::open(make_pool(4), kChunk, 4).value();
  {
    const auto range =
        pool.map(std::vector<ChunkIndex>{3, 0}, AddressRange::Access::kReadWrite).value();
    std::memset(range.data(), 0x33, kChunk);
    std::memset(range.data() + kChunk, 0x44, kChunk);
  }
  const auto range = pool.map(std::vector<ChunkIndex>{0, 3}, AddressRange::Access::kRead).value();
  EXPECT_EQ(range.data()[0], std::byte{0x44});
  EXPECT_EQ(range.data()[2 * kChunk - 1], std::byte{0x33});
}

TEST(HostPool, ChunksOutsideThePoolAreRefused) {
  const auto pool = HostPool::open(make_pool(4), kChunk, 4).value();
  EXPECT_EQ(pool.map(std::vector<ChunkIndex>{4}, AddressRange::Access::kRead).error().code(),
            Code::INVALID_ARGUMENT);
  EXPECT_FALSE(pool.map({}, AddressRange::Access::kRead).has_value());
}

TEST(HostPoolDeathTest, AMappingForReadingCannotBeWritten) {
  const auto pool = HostPool::open(make_pool(2), kChunk, 2).value();
  const auto range = pool.map(std::vector<ChunkIndex>{1}, AddressRange::Access::kRead).value();
  EXPECT_DEATH({ range.data()[0] = std::byte{1}; }, "");
}

class StreamCopy : public ::testing::TestWithParam<CopyPath> {};

TEST_P(StreamCopy, CopiesEveryByteAndNoOther) {
  if (GetParam() > best_copy_path()) GTEST_SKIP() << "this CPU has no such instructions";
  constexpr std::size_t kBytes = 700 * 1024 + 77;  // above the streaming threshold, no whole line
  std::vector<std::byte> from(kBytes + 5);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 255);
  for (const std::size_t shift : {std::size_t{0}, std::size_t{1}, std::size_t{63}}) {
    std::vector<std::byte> to(kBytes + 128, std::byte{0xee});
    stream_copy(to.data() + shift, from.data() + 5, kBytes, GetParam());
    EXPECT_EQ(std::memcmp(to.data() + shift, from.data() + 5, kBytes), 0);
    EXPECT_EQ(to[shift + kBytes], std::byte{0xee});
    if (shift > 0) {
      EXPECT_EQ(to[shift - 1], std::byte{0xee});
    }
  }
}

TEST_P(StreamCopy, ZeroesEveryByteAndNoOther) {
  if (GetParam() > best_copy_path()) GTEST_SKIP() << "this CPU has no such instructions";
  constexpr std::size_t kBytes = 600 * 1024 + 3;
  std::vector<std::byte> to(kBytes + 64, std::byte{0xee});
  stream_zero(to.data() + 17, kBytes, GetParam());
  EXPECT_EQ(to[16], std::byte{0xee});
  EXPECT_EQ(to[17 + kBytes], std::byte{0xee});
  const std::vector<std::byte> zero(kBytes);
  EXPECT_EQ(std::memcmp(to.data() + 17, zero.data(), kBytes), 0);
}

TEST_P(StreamCopy, NothingIsNothing) {
  stream_copy(nullptr, nullptr, 0, GetParam());
  stream_zero(nullptr, 0, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Paths, StreamCopy,
                         ::testing::Values(CopyPath::kPlain, CopyPath::kAvx2, CopyPath::kAvx512));

}  // namespace
}  // namespace plexrl::device
