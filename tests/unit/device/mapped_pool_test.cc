// SPDX-License-Identifier: Apache-2.0
// The host pool mapped whole: registered with the device, over the stub driver, which refuses
// copies from one registration into another and notes memory that was unmapped before its
// registration ended; and without that, on the cpu backend.
#include "device/mapped_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/cpu_backend.h"
#include "device/cuda_backend.h"
#include "device/huge_pages.h"
#include "device/segment_copy.h"
#include "fakes/cuda_stub.h"

namespace plexrl::device {
namespace {

constexpr std::size_t kChunk = std::size_t{2} << 20;
constexpr std::size_t kChunks = 8;
using Chunks = std::vector<ChunkIndex>;

class MappedPoolTest : public ::testing::Test {
 protected:
  MappedPoolTest() {
    stub_.reset();
    CudaOptions options;
    options.library = PLEXRL_CUDA_STUB;
    options.chunk_bytes = kChunk;
    options.chunk_count = kChunks;
    backend_ = CudaBackend::open(options).value();
    place_ = backend_->reserve(3 * kChunk - 1000).value();
    EXPECT_TRUE(backend_->map(*place_, Chunks{0, 1, 2}).ok());
  }
  ~MappedPoolTest() override {
    place_.reset();
    backend_.reset();
    EXPECT_TRUE(stub_.clean()) << stub_.calls();
    stub_.reset();
  }
  std::unique_ptr<MappedPool> start(std::size_t piece_bytes) {
    return MappedPool::start(*backend_, pool_, piece_bytes).value();
  }
  // A pattern to the device, to the host chunks and back.
  void expect_round_trip(const Chunks& chunks, const MappedPool* mapped, int seed) {
    std::vector<std::byte> in(place_->bytes());
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = static_cast<std::byte>((i * 31 + i / 4096 + static_cast<std::size_t>(seed)) & 0xff);
    ASSERT_TRUE(backend_->copy_in(place_->data(), in.data(), in.size()).ok());
    ASSERT_TRUE(copy_to_host(*backend_, pool_, *place_, chunks, mapped).ok());
    ASSERT_TRUE(backend_->zero(place_->data(), place_->bytes()).ok());
    const auto range = pool_.map(chunks, AddressRange::Access::kRead).value();
    EXPECT_TRUE(std::equal(in.begin(), in.end(), range.data()));
    EXPECT_TRUE(std::all_of(range.data() + in.size(), range.data() + range.bytes(),
                            [](std::byte b) { return b == std::byte{0}; }));
    ASSERT_TRUE(copy_from_host(*backend_, pool_, *place_, chunks, mapped).ok());
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

TEST_F(MappedPoolTest, IsRegisteredOnceAndUnregisteredBeforeItIsUnmapped) {
  {
    const auto mapped = start(MappedPool::kPieceBytes);
    ASSERT_TRUE(mapped->wait().ok());
    EXPECT_EQ(mapped->pinned_bytes(), kChunks * kChunk);
    for (int seed = 0; seed < 3; ++seed) expect_round_trip({5, 1, 2}, mapped.get(), seed);
    expect_round_trip({7, 6, 0}, mapped.get(), 9);
    EXPECT_EQ(stub_.called("cuMemHostRegister"), 1);
  }
  EXPECT_EQ(stub_.count("registrations"), 0);
  EXPECT_EQ(stub_.count("violations"), 0);
}

TEST_F(MappedPoolTest, CopiesGoFromPieceToPiece) {
  const auto mapped = start(kChunk);
  ASSERT_TRUE(mapped->wait().ok());
  EXPECT_EQ(stub_.count("registrations"), static_cast<long>(kChunks));
  expect_round_trip({2, 3, 4}, mapped.get(), 1);
}

TEST_F(MappedPoolTest, WhatCannotBeRegisteredIsCopiedAllTheSame) {
  stub_.fail("cuMemHostRegister", 3, cuda::kOutOfMemory);
  const auto mapped = start(kChunk);
  const Status failure = mapped->wait();
  EXPECT_EQ(failure.code(), Code::NO_CAPACITY);
  EXPECT_EQ(mapped->wait(), failure);
  EXPECT_EQ(mapped->pinned_bytes(), 2 * kChunk);
  EXPECT_TRUE(mapped->holds(Chunks{1, 0}));
  EXPECT_FALSE(mapped->holds(Chunks{0, 1, 2}));
  EXPECT_EQ(mapped->at(2), nullptr);
  expect_round_trip({0, 1, 2}, mapped.get(), 1);
  EXPECT_EQ(stub_.called("cuMemHostRegister"), 3);
}

TEST_F(MappedPoolTest, TheEndDoesNotWaitForTheWholePool) {
  for (int turn = 0; turn < 20; ++turn) static_cast<void>(start(kChunk));
  EXPECT_EQ(stub_.count("registrations"), 0);
  EXPECT_EQ(stub_.count("violations"), 0);
}

TEST_F(MappedPoolTest, ChunksThatDoNotExistAreRefusedAsBefore) {
  const auto mapped = start(kChunk);
  ASSERT_TRUE(mapped->wait().ok());
  EXPECT_EQ(copy_to_host(*backend_, pool_, *place_, Chunks{0, 1, 8}, mapped.get()).code(),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(copy_from_host(*backend_, pool_, *place_, Chunks{9, 1, 2}, mapped.get()).code(),
            Code::INVALID_ARGUMENT);
}

TEST_F(MappedPoolTest, PaysWithHugePagesOrWhereCopiesGainByRegistration) {
  const auto cpu = open_cpu_backend(create_cpu_pool("d", kChunk, 1).value(), kChunk, 1).value();
  const HostPool small = HostPool::open(create_cpu_pool("h", 4096, 8).value(), 4096, 8).value();
  EXPECT_FALSE(MappedPool::pays(*cpu, small));
  EXPECT_TRUE(MappedPool::pays(*backend_, small));
  if (pool_.pages() != AddressRange::Pages::kHuge) GTEST_SKIP() << "no huge pages here";
  EXPECT_TRUE(MappedPool::pays(*cpu, pool_));
}

// Notes from and to where it copies.
class NotingBackend final : public CpuBackend {
 public:
  NotingBackend() : CpuBackend(create_cpu_pool("device", kChunk, 4).value(), kChunk, 4, {}) {}
  Status copy_in(std::byte* device, const std::byte* host, std::size_t bytes) override {
    hosts.push_back(host);
    return CpuBackend::copy_in(device, host, bytes);
  }
  Status copy_out(std::byte* host, const std::byte* device, std::size_t bytes) override {
    hosts.push_back(host);
    return CpuBackend::copy_out(host, device, bytes);
  }
  std::vector<const std::byte*> hosts;
};

TEST(MappedPoolOnCpu, MovesCopyToAndFromTheOneMapping) {
  NotingBackend backend;
  const HostPool pool =
      HostPool::open(create_cpu_pool("host", kChunk, kChunks).value(), kChunk, kChunks).value();
  const auto mapped = MappedPool::start(backend, pool, kChunk).value();
  ASSERT_TRUE(mapped->wait().ok());
  EXPECT_EQ(mapped->pinned_bytes(), 0U) << "nothing is registered";
  const auto place = backend.reserve(2 * kChunk + 100).value();
  ASSERT_TRUE(backend.map(*place, Chunks{3, 0, 1}).ok());
  std::fill_n(place->data(), place->bytes(), std::byte{7});
  const Chunks chunks = {4, 5, 1};
  ASSERT_TRUE(copy_to_host(backend, pool, *place, chunks, mapped.get()).ok());
  std::fill_n(place->data(), place->bytes(), std::byte{0});
  ASSERT_TRUE(copy_from_host(backend, pool, *place, chunks, mapped.get()).ok());
  EXPECT_TRUE(std::all_of(place->data(), place->data() + place->bytes(),
                          [](std::byte b) { return b == std::byte{7}; }));
  const std::vector<const std::byte*> expected = {mapped->at(4), mapped->at(1), mapped->at(4),
                                                  mapped->at(1)};
  EXPECT_EQ(backend.hosts, expected);
}

}  // namespace
}  // namespace plexrl::device
