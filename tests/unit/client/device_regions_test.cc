// SPDX-License-Identifier: Apache-2.0
// Regions in the memory of a device, over the stub of a CUDA driver.
#include "client/device_regions.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "fakes/cuda_stub.h"

namespace plexrl::client {
namespace {

constexpr std::uint64_t kMib = 1U << 20;
constexpr int kOutOfMemory = 2;

class DeviceRegionsTest : public ::testing::Test {
 protected:
  DeviceRegionsTest() : stub_(PLEXRL_CUDA_STUB) {
    stub_.reset();
    stub_.set("total_bytes", 64L << 20);
  }
  void SetUp() override {
    auto opened = DeviceRegions::open_cuda(PLEXRL_CUDA_STUB, 0);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    regions_ = *std::move(opened);
  }
  static UniqueFd host_file(std::uint64_t bytes) {
    UniqueFd fd(::memfd_create("region", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    return fd;
  }
  static std::vector<std::byte> pattern(std::uint64_t bytes, unsigned seed) {
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<std::byte>((i * 131 + i / 4096 + seed * 7919) & 0xff);
    return data;
  }
  void write(RegionMemory& region, const std::vector<std::byte>& data) {
    ASSERT_TRUE(regions_->backend_of(data.size())
                    .copy_in(static_cast<std::byte*>(region.address()), data.data(), data.size())
                    .ok());
  }
  std::vector<std::byte> read(const RegionMemory& region, std::uint64_t bytes) {
    std::vector<std::byte> data(bytes);
    EXPECT_TRUE(regions_->backend_of(bytes)
                    .copy_out(data.data(), static_cast<std::byte*>(region.address()), bytes)
                    .ok());
    return data;
  }

  device::CudaStub stub_;
  std::unique_ptr<DeviceRegions> regions_;
};

TEST_F(DeviceRegionsTest, KeepsContentsAndAddressAndFreesTheDevice) {
  const std::uint64_t bytes = 5 * kMib + 4096;
  const UniqueFd file = host_file(bytes);
  {
    auto region = regions_->make(bytes).value();
    ASSERT_TRUE(region->resume(file.get()).ok());
    EXPECT_EQ(read(*region, bytes), std::vector<std::byte>(bytes)) << "zeros at first";
    void* const address = region->address();
    for (unsigned turn = 0; turn < 3; ++turn) {
      const auto data = pattern(bytes, turn);
      write(*region, data);
      ASSERT_TRUE(region->suspend(file.get()).ok());
      EXPECT_EQ(stub_.count("used_bytes"), 0) << "the device is free";
      ASSERT_TRUE(region->suspend(file.get()).ok()) << "again";
      ASSERT_TRUE(region->resume(file.get()).ok());
      EXPECT_EQ(region->address(), address);
      EXPECT_EQ(read(*region, bytes), data);
    }
  }
  regions_.reset();
  EXPECT_TRUE(stub_.clean());
  EXPECT_EQ(stub_.count("violations"), 0);
}

TEST_F(DeviceRegionsTest, AFailedResumeLosesNothing) {
  const std::uint64_t bytes = 4 * kMib;
  const UniqueFd file = host_file(bytes);
  auto region = regions_->make(bytes).value();
  ASSERT_TRUE(region->resume(file.get()).ok());
  const auto data = pattern(bytes, 9);
  write(*region, data);
  ASSERT_TRUE(region->suspend(file.get()).ok());
  using Fault = std::pair<const char*, long>;
  for (const auto& [function, nth] :
       {Fault{"cuMemCreate", 2}, Fault{"cuMemMap", 2}, Fault{"cuMemSetAccess", 1}}) {
    stub_.fail(function, nth, kOutOfMemory);
    EXPECT_FALSE(region->resume(file.get()).ok()) << function;
    EXPECT_EQ(stub_.count("used_bytes"), 0) << function;
    ASSERT_TRUE(region->resume(file.get()).ok()) << function;
    EXPECT_EQ(read(*region, bytes), data) << function;
    ASSERT_TRUE(region->suspend(file.get()).ok());
  }
}

TEST_F(DeviceRegionsTest, ALargeRegionIsMadeOfLargeChunks) {
  stub_.set("total_bytes", 256L << 20);
  regions_ = DeviceRegions::open_cuda(PLEXRL_CUDA_STUB, 0).value();
  const std::uint64_t bytes = 130 * kMib;
  const UniqueFd file = host_file(bytes);
  auto region = regions_->make(bytes).value();
  ASSERT_TRUE(region->resume(file.get()).ok());
  EXPECT_EQ(stub_.count("handles"), 9) << "of 16 MiB";
  const auto data = pattern(bytes, 3);
  write(*region, data);
  ASSERT_TRUE(region->suspend(file.get()).ok());
  EXPECT_EQ(stub_.count("used_bytes"), 0);
  ASSERT_TRUE(region->resume(file.get()).ok());
  EXPECT_EQ(read(*region, bytes), data);
}

TEST_F(DeviceRegionsTest, HostMemoryIsPinnedOnceAndAsLongAsTheRegionLives) {
  const std::uint64_t bytes = 4 * kMib;
  const UniqueFd file = host_file(bytes);
  auto region = regions_->make(bytes).value();
  ASSERT_TRUE(region->resume(file.get()).ok());
  EXPECT_EQ(stub_.count("registrations"), 0) << "nothing to copy yet";
  const long before = stub_.called("cuMemHostRegister");
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(region->suspend(file.get()).ok());
    EXPECT_EQ(stub_.count("registrations"), 1);
    ASSERT_TRUE(region->resume(file.get()).ok());
  }
  EXPECT_EQ(stub_.called("cuMemHostRegister") - before, 1);
  region.reset();
  EXPECT_EQ(stub_.count("registrations"), 0);
}

TEST_F(DeviceRegionsTest, AFailedSuspendLeavesTheRegionOnTheDevice) {
  const std::uint64_t bytes = 4 * kMib;
  const UniqueFd file = host_file(bytes);
  auto region = regions_->make(bytes).value();
  ASSERT_TRUE(region->resume(file.get()).ok());
  const auto data = pattern(bytes, 4);
  write(*region, data);
  stub_.fail("cuMemcpyDtoHAsync", 1, kOutOfMemory);
  EXPECT_FALSE(region->suspend(file.get()).ok());
  EXPECT_EQ(read(*region, bytes), data);
  // Without pinned memory it is slower and still right.
  stub_.fail("cuMemHostRegister", 1, kOutOfMemory);
  ASSERT_TRUE(region->suspend(file.get()).ok());
  EXPECT_EQ(stub_.count("registrations"), 0);
  ASSERT_TRUE(region->resume(file.get()).ok());
  EXPECT_EQ(read(*region, bytes), data);
}

TEST_F(DeviceRegionsTest, MoreThanTheDeviceIsNoCapacity) {
  const UniqueFd file = host_file(40 * kMib);
  auto one = regions_->make(40 * kMib).value();
  auto two = regions_->make(40 * kMib).value();
  ASSERT_TRUE(one->resume(file.get()).ok());
  EXPECT_EQ(two->resume(file.get()).code(), Code::NO_CAPACITY);
  ASSERT_TRUE(one->suspend(file.get()).ok());
  EXPECT_TRUE(two->resume(file.get()).ok());
}

}  // namespace
}  // namespace plexrl::client
