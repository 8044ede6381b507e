// SPDX-License-Identifier: Apache-2.0
// The host pool registered with the device, over the stub driver, which refuses copies from one
// registration into another and notes memory that was unmapped before its registration ended.
#include "device/pinned_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/cuda_backend.h"
#include "device/segment_copy.h"
#include "fakes/cuda_stub.h"

namespace plexrl::device {
namespace {

constexpr std::size_t kChunk = std::size_t{2} << 20;
constexpr std::size_t kChunks = 8;
using Chunks = std::vector<ChunkIndex>;

class PinnedPoolTest : public ::testing::Test {
 protected:
  PinnedPoolTest() {
    stub_.reset();
    CudaOptions options;
    options.library = PLEXRL_CUDA_STUB;
    options.chunk_bytes = kChunk;
    options.chunk_count = kChunks;
    backend_ = CudaBackend::open(options).value();
    place_ = backend_->reserve(3 * kChunk - 1000).value();
    EXPECT_TRUE(backend_->map(*place_, Chunks{0, 1, 2}).ok());
  }
  ~PinnedPoolTest() override {
    place_.reset();
    backend_.reset();
    EXPECT_TRUE(stub_.clean()) << stub_.calls();
    stub_.reset();
  }
  std::unique_ptr<PinnedPool> start(std::size_t piece_bytes) {
    return PinnedPool::start(*backend_, pool_, piece_bytes).value();
  }
  // A pattern to the device, to the host chunks and back.
  void expect_round_trip(const Chunks& chunks, const PinnedPool* pinned, int seed) {
    std::vector<std::byte> in(place_->bytes());
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = static_cast<std::byte>((i * 31 + i / 4096 + static_cast<std::size_t>(seed)) & 0xff);
    ASSERT_TRUE(backend_->copy_in(place_->data(), in.data(), in.size()).ok());
    ASSERT_TRUE(copy_to_host(*backend_, pool_, *place_, chunks, pinned).ok());
    ASSERT_TRUE(backend_->zero(place_->data(), place_->bytes()).ok());
    const auto range = pool_.map(chunks, AddressRange::Access::kRead).value();
    EXPECT_TRUE(std::equal(in.begin(), in.end(), range.data()));
    EXPECT_TRUE(std::all_of(range.data() + in.size(), range.data() + range.bytes(),
                            [](std::byte b) { return b == std::byte{0}; }));
    ASSERT_TRUE(copy_from_host(*backend_, pool_, *place_, chunks, pinned).ok());
    std::vector<std::byte> out(in.size());
    ASSERT_TRUE(backend_->copy_out(out.data(), place_->data(), out.size()).ok());
    EXPECT_EQ(in, out);
  }

  CudaStub stub_{PLEXRL_CUDA_STUB};
  HostPool pool_ =
      HostPool::open(create_cpu_pool("test", kChunk, kChunks).value(), kChunk, kChunks).value();
  std::unique_ptr<CudaBackend> backend_;
  std::unique_ptr<Reservation> place_;
};

TEST_F(PinnedPoolTest, IsRegisteredOnceAndUnregisteredBeforeItIsUnmapped) {
  {
    const auto pinned = start(PinnedPool::kPieceBytes);
    ASSERT_TRUE(pinned->wait().ok());
    EXPECT_EQ(pinned->pinned_bytes(), kChunks * kChunk);
    for (int seed = 0; seed < 3; ++seed) expect_round_trip({5, 1, 2}, pinned.get(), seed);
    expect_round_trip({7, 6, 0}, pinned.get(), 9);
    EXPECT_EQ(stub_.called("cuMemHostRegister"), 1);
  }
  EXPECT_EQ(stub_.count("registrations"), 0);
  EXPECT_EQ(stub_.count("violations"), 0);
}

TEST_F(PinnedPoolTest, CopiesGoFromPieceToPiece) {
  const auto pinned = start(kChunk);
  ASSERT_TRUE(pinned->wait().ok());
  EXPECT_EQ(stub_.count("registrations"), static_cast<long>(kChunks));
  expect_round_trip({2, 3, 4}, pinned.get(), 1);
}

TEST_F(PinnedPoolTest, WhatCannotBeRegisteredIsCopiedAllTheSame) {
  stub_.fail("cuMemHostRegister", 3, cuda::kOutOfMemory);
  const auto pinned = start(kChunk);
  const Status failure = pinned->wait();
  EXPECT_EQ(failure.code(), Code::NO_CAPACITY);
  EXPECT_EQ(pinned->wait(), failure);
  EXPECT_EQ(pinned->pinned_bytes(), 2 * kChunk);
  EXPECT_TRUE(pinned->holds(Chunks{1, 0}));
  EXPECT_FALSE(pinned->holds(Chunks{0, 1, 2}));
  EXPECT_EQ(pinned->at(2), nullptr);
  expect_round_trip({0, 1, 2}, pinned.get(), 1);
  EXPECT_EQ(stub_.called("cuMemHostRegister"), 3);
}

TEST_F(PinnedPoolTest, TheEndDoesNotWaitForTheWholePool) {
  for (int turn = 0; turn < 20; ++turn) static_cast<void>(start(kChunk));
  EXPECT_EQ(stub_.count("registrations"), 0);
  EXPECT_EQ(stub_.count("violations"), 0);
}

TEST_F(PinnedPoolTest, ChunksThatDoNotExistAreRefusedAsBefore) {
  const auto pinned = start(kChunk);
  ASSERT_TRUE(pinned->wait().ok());
  EXPECT_EQ(copy_to_host(*backend_, pool_, *place_, Chunks{0, 1, 8}, pinned.get()).code(),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(copy_from_host(*backend_, pool_, *place_, Chunks{9, 1, 2}, pinned.get()).code(),
            Code::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace plexrl::device
