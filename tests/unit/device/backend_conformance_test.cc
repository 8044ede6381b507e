// SPDX-License-Identifier: Apache-2.0
// What every DeviceBackend must do; run on all that need no device.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/device_backend.h"
#include "fakes/fake_backend.h"

namespace plexrl::device {
namespace {

constexpr std::size_t kChunk = 64 * 1024;
constexpr std::size_t kChunks = 8;

std::unique_ptr<DeviceBackend> make_cpu() {
  auto pool = create_cpu_pool("test-device", kChunk, kChunks);
  return open_cpu_backend(std::move(pool).value(), kChunk, kChunks).value();
}

std::unique_ptr<DeviceBackend> make_fake() { return FakeBackend::create(kChunk, kChunks).value(); }

struct Kind {
  std::string name;
  std::function<std::unique_ptr<DeviceBackend>()> make;
};

class BackendConformance : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Reservation> reserved(std::size_t bytes) {
    return backend_->reserve(bytes).value();
  }
  std::unique_ptr<DeviceBackend> backend_ = GetParam().make();
};

TEST_P(BackendConformance, TellsItsGeometry) {
  EXPECT_EQ(backend_->chunk_bytes(), kChunk);
  EXPECT_EQ(backend_->chunk_count(), kChunks);
}

TEST_P(BackendConformance, AReservationHasNoMemory) {
  const auto place = reserved(kChunk + 1);
  EXPECT_NE(place->data(), nullptr);
  EXPECT_EQ(place->bytes(), kChunk + 1);
  EXPECT_FALSE(place->mapped());
}

TEST_P(BackendConformance, MoreThanTheDeviceHasIsRefused) {
  EXPECT_EQ(backend_->reserve(kChunk * kChunks + 1).error().code(), Code::NO_CAPACITY);
  EXPECT_EQ(backend_->reserve(0).error().code(), Code::NO_CAPACITY);
}

TEST_P(BackendConformance, TheAddressNeverChanges) {
  const auto place = reserved(2 * kChunk);
  std::byte* const address = place->data();
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{0, 1}).ok());
  EXPECT_EQ(place->data(), address);
  ASSERT_TRUE(backend_->unmap(*place).ok());
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{7, 3}).ok());
  EXPECT_EQ(place->data(), address);
}

TEST_P(BackendConformance, ChunksKeepTheirContentsAndOrder) {
  const auto place = reserved(2 * kChunk);
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{5, 2}).ok());
  std::memset(place->data(), 0x11, kChunk);
  std::memset(place->data() + kChunk, 0x22, kChunk);
  ASSERT_TRUE(backend_->unmap(*place).ok());
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{2, 5}).ok());
  EXPECT_EQ(place->data()[0], std::byte{0x22});
  EXPECT_EQ(place->data()[2 * kChunk - 1], std::byte{0x11});
}

TEST_P(BackendConformance, AnotherReservationSeesTheSameChunk) {
  const auto first = reserved(kChunk);
  const auto second = reserved(kChunk);
  ASSERT_TRUE(backend_->map(*first, std::vector<ChunkIndex>{4}).ok());
  std::memset(first->data(), 0x5a, kChunk);
  ASSERT_TRUE(backend_->unmap(*first).ok());
  ASSERT_TRUE(backend_->map(*second, std::vector<ChunkIndex>{4}).ok());
  EXPECT_EQ(second->data()[kChunk - 1], std::byte{0x5a});
}

TEST_P(BackendConformance, AChunkIsMappedOnceAtATime) {
  const auto first = reserved(kChunk);
  const auto second = reserved(2 * kChunk);
  ASSERT_TRUE(backend_->map(*first, std::vector<ChunkIndex>{4}).ok());
  EXPECT_EQ(backend_->map(*second, std::vector<ChunkIndex>{3, 4}).code(), Code::INVALID_ARGUMENT);
  EXPECT_FALSE(second->mapped());
  EXPECT_EQ(backend_->map(*second, std::vector<ChunkIndex>{2, 2}).code(), Code::INVALID_ARGUMENT);
  EXPECT_TRUE(backend_->map(*second, std::vector<ChunkIndex>{3, 2}).ok());
}

TEST_P(BackendConformance, DestroyingAReservationFreesItsChunks) {
  auto first = reserved(kChunk);
  ASSERT_TRUE(backend_->map(*first, std::vector<ChunkIndex>{4}).ok());
  first.reset();
  const auto second = reserved(kChunk);
  EXPECT_TRUE(backend_->map(*second, std::vector<ChunkIndex>{4}).ok());
}

TEST_P(BackendConformance, WrongMapCallsChangeNothing) {
  const auto place = reserved(2 * kChunk);
  EXPECT_EQ(backend_->map(*place, std::vector<ChunkIndex>{1}).code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(backend_->map(*place, std::vector<ChunkIndex>{1, 2, 3}).code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(backend_->map(*place, std::vector<ChunkIndex>{1, kChunks}).code(),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(backend_->unmap(*place).code(), Code::INVALID_ARGUMENT);
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{1, 2}).ok());
  EXPECT_EQ(backend_->map(*place, std::vector<ChunkIndex>{3, 4}).code(), Code::INVALID_ARGUMENT);
  EXPECT_TRUE(place->mapped());
}

TEST_P(BackendConformance, CopiesInAndOutAnyLength) {
  const auto place = reserved(3 * kChunk);
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{6, 0, 1}).ok());
  std::vector<std::byte> in(2 * kChunk + 13);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 7 + i / 251);
  ASSERT_TRUE(backend_->copy_in(place->data() + 3, in.data(), in.size()).ok());
  std::vector<std::byte> out(in.size());
  ASSERT_TRUE(backend_->copy_out(out.data(), place->data() + 3, out.size()).ok());
  EXPECT_EQ(in, out);
}

TEST_P(BackendConformance, ZeroClearsExactlyTheRange) {
  const auto place = reserved(kChunk);
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{6}).ok());
  std::memset(place->data(), 0x33, kChunk);
  ASSERT_TRUE(backend_->zero(place->data() + 1, 100).ok());
  EXPECT_EQ(place->data()[0], std::byte{0x33});
  EXPECT_EQ(place->data()[1], std::byte{0});
  EXPECT_EQ(place->data()[100], std::byte{0});
  EXPECT_EQ(place->data()[101], std::byte{0x33});
}

TEST_P(BackendConformance, ReservationsMayBeUsedFromSeveralThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (ChunkIndex t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const auto place = reserved(2 * kChunk);
      for (int i = 0; i < 50; ++i) {
        failures += !backend_->map(*place, std::vector<ChunkIndex>{2 * t, 2 * t + 1}).ok();
        std::memset(place->data(), static_cast<int>(t), 2 * kChunk);
        failures += !backend_->unmap(*place).ok();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

using BackendConformanceDeathTest = BackendConformance;

TEST_P(BackendConformanceDeathTest, UseWithoutMemoryFaults) {
  const auto place = reserved(kChunk);
  EXPECT_DEATH({ place->data()[0] = std::byte{1}; }, "");
}

TEST_P(BackendConformanceDeathTest, UseAfterUnmapFaults) {
  const auto place = reserved(kChunk);
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{0}).ok());
  place->data()[0] = std::byte{1};
  ASSERT_TRUE(backend_->unmap(*place).ok());
  EXPECT_DEATH({ place->data()[0] = std::byte{2}; }, "");
}

const std::vector<Kind> kKinds = {{"cpu", make_cpu}, {"fake", make_fake}};
std::string kind_name(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, BackendConformance, ::testing::ValuesIn(kKinds), kind_name);
INSTANTIATE_TEST_SUITE_P(All, BackendConformanceDeathTest, ::testing::ValuesIn(kKinds), kind_name);

TEST(FakeBackend, AFailedMapRollsBackToNothing) {
  auto backend = FakeBackend::create(kChunk, kChunks).value();
  const auto place = backend->reserve(3 * kChunk).value();
  backend->faults().map_run = 2;  // the second of two runs
  EXPECT_EQ(backend->map(*place, std::vector<ChunkIndex>{1, 2, 5}).code(), Code::IO);
  EXPECT_FALSE(place->mapped());
  EXPECT_TRUE(backend->map(*place, std::vector<ChunkIndex>{1, 2, 5}).ok());
}

TEST(FakeBackendDeathTest, AfterARollbackTheFirstRunIsGoneToo) {
  auto backend = FakeBackend::create(kChunk, kChunks).value();
  const auto place = backend->reserve(2 * kChunk).value();
  backend->faults().map_run = 2;
  ASSERT_FALSE(backend->map(*place, std::vector<ChunkIndex>{1, 5}).ok());
  EXPECT_DEATH({ place->data()[0] = std::byte{1}; }, "");
}

TEST(FakeBackend, EveryCallFailsOnDemandAndOnlyOnce) {
  auto backend = FakeBackend::create(kChunk, kChunks).value();
  backend->faults().reserve = 1;
  EXPECT_EQ(backend->reserve(kChunk).error().code(), Code::IO);
  const auto place = backend->reserve(kChunk).value();
  ASSERT_TRUE(backend->map(*place, std::vector<ChunkIndex>{0}).ok());
  std::byte host{};
  backend->faults().copy_in = backend->faults().copy_out = backend->faults().zero = 1;
  EXPECT_FALSE(backend->copy_in(place->data(), &host, 1).ok());
  EXPECT_FALSE(backend->copy_out(&host, place->data(), 1).ok());
  EXPECT_FALSE(backend->zero(place->data(), 1).ok());
  EXPECT_TRUE(backend->copy_in(place->data(), &host, 1).ok());
  backend->faults().unmap = 1;
  EXPECT_FALSE(backend->unmap(*place).ok());
  EXPECT_TRUE(place->mapped());
  EXPECT_TRUE(backend->unmap(*place).ok());
}

}  // namespace
}  // namespace plexrl::device
