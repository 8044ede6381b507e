// SPDX-License-Identifier: Apache-2.0
// That no byte of a chunk's former users is behind a segment in its last chunk, in either pool,
// whatever the sizes and whoever dies between the raising of a mark and the zeroing.
#include "device/pool_marks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "device/cpu_backend.h"
#include "device/mapped_pool.h"
#include "device/segment_copy.h"

namespace plexrl::device {
namespace {

constexpr std::size_t kChunk = 16 * 1024;
constexpr std::size_t kChunks = 12;
using Chunks = std::vector<ChunkIndex>;

UniqueFd again(const UniqueFd& fd) { return UniqueFd(::dup(fd.get())); }

bool all_zero(const std::byte* from, const std::byte* to) {
  return std::all_of(from, to, [](std::byte b) { return b == std::byte{0}; });
}

// The cpu backend as a process has it that may be killed in the middle of a copy to the host.
class DyingBackend final : public CpuBackend {
 public:
  explicit DyingBackend(const UniqueFd& pool)
      : CpuBackend(again(pool), kChunk, kChunks,
                   PoolMarks::open(pool.get(), kChunk, kChunks).value()) {}
  Status copy_out(std::byte* host, const std::byte* device, std::size_t bytes) override {
    if (!dies) return CpuBackend::copy_out(host, device, bytes);
    const Status copied = CpuBackend::copy_out(host, device, bytes / 2);
    return copied.ok() ? error(Code::IO, "killed") : copied;
  }
  bool dies = false;
};

// Two pools, and the process that uses them.
class PoolMarksTest : public ::testing::TestWithParam<bool> {
 protected:
  PoolMarksTest() { start(); }
  // What one process knew is gone.
  void start() {
    place_.reset();
    mapped_.reset();
    host_.reset();
    backend_ = std::make_unique<DyingBackend>(device_pool_);
    host_ = std::make_unique<HostPool>(HostPool::open(again(host_pool_), kChunk, kChunks).value());
    if (!GetParam()) return;
    mapped_ = MappedPool::start(*backend_, *host_).value();
    EXPECT_TRUE(mapped_->wait().ok());
  }
  void map(std::size_t bytes, const Chunks& chunks) {
    place_ = backend_->reserve(bytes).value();
    ASSERT_TRUE(backend_->map(*place_, chunks).ok());
  }
  [[nodiscard]] std::size_t mapped_bytes() const {
    return (place_->bytes() + kChunk - 1) / kChunk * kChunk;
  }
  [[nodiscard]] bool device_tail_is_zero() const {
    return all_zero(place_->data() + place_->bytes(), place_->data() + mapped_bytes());
  }
  [[nodiscard]] bool host_tail_is_zero(const Chunks& chunks) const {
    const auto range = host_->map(chunks, AddressRange::Access::kRead).value();
    return all_zero(range.data() + place_->bytes(), range.data() + range.bytes());
  }
  // The promise of all marks: behind them there is nothing.
  static bool marks_hold(const UniqueFd& pool) {
    const auto marks = PoolMarks::open(pool.get(), kChunk, kChunks).value();
    std::vector<std::byte> chunk(kChunk);
    for (ChunkIndex i = 0; i < kChunks; ++i) {
      if (::pread(pool.get(), chunk.data(), kChunk, static_cast<off_t>(i * kChunk)) !=
          static_cast<ssize_t>(kChunk))
        return false;
      if (!all_zero(chunk.data() + marks.dirty_bytes(i), chunk.data() + kChunk)) return false;
    }
    return true;
  }

  UniqueFd device_pool_ = create_cpu_pool("device", kChunk, kChunks).value();
  UniqueFd host_pool_ = create_cpu_pool("host", kChunk, kChunks).value();
  std::unique_ptr<DyingBackend> backend_;
  std::unique_ptr<HostPool> host_;
  std::unique_ptr<MappedPool> mapped_;
  std::unique_ptr<Reservation> place_;
};

TEST_P(PoolMarksTest, NothingOfFormerUsersIsSeenWhateverTheSizes) {
  std::mt19937 random(20261130);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random()) % end; };
  Chunks device(kChunks);
  Chunks host(kChunks);
  std::iota(device.begin(), device.end(), 0U);
  std::iota(host.begin(), host.end(), 0U);
  for (int step = 0; step < 3000; ++step) {
    SCOPED_TRACE(step);
    const std::size_t bytes = 1 + below(3 * kChunk);
    const std::size_t count = (bytes + kChunk - 1) / kChunk;
    std::shuffle(device.begin(), device.end(), random);
    std::shuffle(host.begin(), host.end(), random);
    const Chunks device_chunks(device.begin(), device.begin() + static_cast<std::ptrdiff_t>(count));
    const Chunks host_chunks(host.begin(), host.begin() + static_cast<std::ptrdiff_t>(count));
    map(bytes, device_chunks);
    std::fill_n(place_->data(), bytes, std::byte{0x5a});
    if (below(4) == 0) {
      start();  // killed before the rest was zeroed
    } else {
      ASSERT_TRUE(backend_->zero_tail(*place_).ok());
      ASSERT_TRUE(device_tail_is_zero());
      backend_->dies = below(4) == 0;
      const Status copied = copy_to_host(*backend_, *host_, *place_, host_chunks, mapped_.get());
      ASSERT_EQ(copied.ok(), !backend_->dies);
      ASSERT_TRUE(!copied.ok() || host_tail_is_zero(host_chunks));
      if (!copied.ok()) start();
    }
    ASSERT_TRUE(step % 16 != 0 || (marks_hold(device_pool_) && marks_hold(host_pool_)));
  }
}

// Marks may be anything: an engine that went wrong can write there.
TEST_P(PoolMarksTest, GarbageCountsAsAFullChunk) {
  const std::vector<std::uint64_t> garbage(kChunks, 0xdeadbeefdeadbeefU);
  const std::vector<std::byte> secret(kChunk * kChunks, std::byte{0x77});
  for (const UniqueFd* const pool : {&device_pool_, &host_pool_}) {
    ASSERT_EQ(::pwrite(pool->get(), secret.data(), secret.size(), 0),
              static_cast<ssize_t>(secret.size()));
    ASSERT_EQ(::pwrite(pool->get(), garbage.data(), kChunks * sizeof garbage[0], kChunk * kChunks),
              static_cast<ssize_t>(kChunks * sizeof garbage[0]));
  }
  EXPECT_EQ(host_->marks().dirty_bytes(3), kChunk);
  map(100, {7});
  ASSERT_TRUE(backend_->zero_tail(*place_).ok());
  EXPECT_TRUE(device_tail_is_zero());
  ASSERT_TRUE(copy_to_host(*backend_, *host_, *place_, Chunks{3}, mapped_.get()).ok());
  EXPECT_TRUE(host_tail_is_zero({3}));
  EXPECT_EQ(host_->marks().dirty_bytes(3), 100U);
}

TEST_P(PoolMarksTest, WhoIsKilledLeavesAMarkThatIsHighEnough) {
  const pid_t child = ::fork();
  if (child == 0) {
    DyingBackend mine(device_pool_);
    const auto place = mine.reserve(kChunk - 5).value();
    if (!mine.map(*place, Chunks{2}).ok()) ::_exit(1);
    std::fill_n(place->data(), place->bytes(), std::byte{0x44});
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  map(10, {2});
  EXPECT_EQ(place_->data()[20], std::byte{0x44}) << "the memory is the same";
  ASSERT_TRUE(backend_->zero_tail(*place_).ok());
  EXPECT_TRUE(device_tail_is_zero());
}

INSTANTIATE_TEST_SUITE_P(Host, PoolMarksTest, ::testing::Bool(), [](const auto& one) {
  return one.param ? "MappedWhole" : "MappedPerMove";
});

TEST(PoolMarks, WhatIsKnownToBeZeroIsNotTouched) {
  const UniqueFd pool = create_cpu_pool("device", kChunk, 2).value();
  const auto marks = PoolMarks::open(pool.get(), kChunk, 2).value();
  std::vector<std::byte> chunk(kChunk, std::byte{9});
  EXPECT_EQ(marks.dirty_bytes(1), 0U) << "new memory is zero";
  marks.raise(1, 300);
  marks.clean(1, chunk.data(), 100);
  EXPECT_EQ(marks.dirty_bytes(1), 100U);
  EXPECT_TRUE(all_zero(chunk.data() + 100, chunk.data() + 300));
  EXPECT_EQ(chunk[99], std::byte{9});
  EXPECT_EQ(chunk[300], std::byte{9});
  marks.raise(1, 50);
  EXPECT_EQ(marks.dirty_bytes(1), 100U) << "never lowered by less";
  marks.clean(1, chunk.data(), 200);
  EXPECT_EQ(marks.dirty_bytes(1), 100U);
}

TEST(PoolMarks, OfAPoolWithoutAnyAllChunksAreFull) {
  const UniqueFd pool(::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(pool.get(), 2 * kChunk), 0);
  ASSERT_EQ(::fcntl(pool.get(), F_ADD_SEALS, kPoolSeals), 0);
  ASSERT_TRUE(check_pool(pool.get(), kChunk, 2).ok());
  const auto marks = PoolMarks::open(pool.get(), kChunk, 2).value();
  std::vector<std::byte> chunk(kChunk, std::byte{9});
  for (int turn = 0; turn < 2; ++turn) {
    marks.raise(Chunks{0, 1}, kChunk + 10);
    EXPECT_EQ(marks.dirty_bytes(1), kChunk);
    std::fill(chunk.begin(), chunk.end(), std::byte{9});
    marks.clean(1, chunk.data(), 10);
    EXPECT_TRUE(all_zero(chunk.data() + 10, chunk.data() + kChunk));
  }
}

}  // namespace
}  // namespace plexrl::device
