// SPDX-License-Identifier: Apache-2.0
// The cuda backend over the stub driver: order of calls, every error path, leaks.
#include "device/cuda_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <sstream>

#include "fakes/cuda_stub.h"

namespace plexrl::device {
namespace {

constexpr std::size_t kChunk = std::size_t{2} << 20;
constexpr std::size_t kChunks = 8;
using Chunks = std::vector<ChunkIndex>;

CudaOptions options() {
  CudaOptions out;
  out.library = PLEXRL_CUDA_STUB;
  out.chunk_bytes = kChunk;
  out.chunk_count = kChunks;
  out.prove_free_within = Duration{20 * kMillisecond.ns};
  return out;
}

class CudaBackendTest : public ::testing::Test {
 protected:
  CudaBackendTest() { stub_.reset(); }
  ~CudaBackendTest() override { stub_.reset(); }
  std::unique_ptr<CudaBackend> open() { return CudaBackend::open(options()).value(); }
  // Position of the nth call of a function in the log; -1 without.
  [[nodiscard]] std::ptrdiff_t position(const std::string& function, int nth = 1) const {
    std::istringstream lines(stub_.calls());
    std::ptrdiff_t at = 0;
    for (std::string line; std::getline(lines, line); ++at)
      if (line == function && --nth == 0) return at;
    return -1;
  }
  CudaStub stub_{PLEXRL_CUDA_STUB};
};

TEST_F(CudaBackendTest, OpensAndGivesEverythingBack) {
  {
    const auto backend = open();
    EXPECT_EQ(backend->device_name(), "stub device");
    EXPECT_TRUE(backend->rdma());
    EXPECT_EQ(backend->memory()->total_bytes, std::size_t{256} << 20);
  }
  EXPECT_TRUE(stub_.clean()) << stub_.calls();
}

TEST_F(CudaBackendTest, AMissingLibraryIsAClearError) {
  CudaOptions none = options();
  none.library = "libcuda-that-nobody-has.so.1";
  const Status status = CudaBackend::open(none).error();
  EXPECT_EQ(status.code(), Code::UNSUPPORTED);
  EXPECT_NE(status.text().find("libcuda-that-nobody-has.so.1"), std::string::npos);
}

TEST_F(CudaBackendTest, ALibraryWithoutAFunctionIsAClearError) {
  CudaOptions other = options();
  other.library = "libc.so.6";
  const Status status = CudaBackend::open(other).error();
  EXPECT_EQ(status.code(), Code::UNSUPPORTED);
  EXPECT_NE(status.text().find("no function cuInit"), std::string::npos) << status.text();
}

TEST_F(CudaBackendTest, DevicesThatAreNotThereAreNotFound) {
  CudaOptions second = options();
  for (const int ordinal : {1, -1}) {
    second.device = ordinal;
    EXPECT_EQ(CudaBackend::open(second).error().code(), Code::NOT_FOUND);
  }
  stub_.set("devices", 0);
  const Status status = CudaBackend::open(options()).error();
  EXPECT_EQ(status.code(), Code::NOT_FOUND);
  EXPECT_NE(status.text().find("CUDA_ERROR_NO_DEVICE"), std::string::npos);
}

TEST_F(CudaBackendTest, ADeviceWithoutVirtualMemoryIsUnsupported) {
  stub_.set("vmm", 0);
  EXPECT_EQ(CudaBackend::open(options()).error().code(), Code::UNSUPPORTED);
}

TEST_F(CudaBackendTest, ImpossibleSizesAreRefused) {
  CudaOptions wrong = options();
  for (const std::size_t bytes : {std::size_t{0}, kChunk - 1, kChunk + 4096}) {
    wrong.chunk_bytes = bytes;
    EXPECT_EQ(CudaBackend::open(wrong).error().code(), Code::INVALID_ARGUMENT) << bytes;
  }
  wrong = options();
  wrong.chunk_count = 0;
  EXPECT_EQ(CudaBackend::open(wrong).error().code(), Code::INVALID_ARGUMENT);
  wrong.chunk_count = 129;  // 258 MiB of 256
  EXPECT_EQ(CudaBackend::open(wrong).error().code(), Code::NO_CAPACITY);
  wrong.chunk_count = SIZE_MAX / 2;
  EXPECT_EQ(CudaBackend::open(wrong).error().code(), Code::NO_CAPACITY);
  EXPECT_TRUE(stub_.clean());
}

TEST_F(CudaBackendTest, MemoryForNetworkAdaptersIsAnOption) {
  CudaOptions plain = options();
  plain.rdma = false;
  EXPECT_FALSE(CudaBackend::open(plain).value()->rdma());
  stub_.set("rdma", 0);
  EXPECT_FALSE(open()->rdma());
  stub_.set("rdma", 1);
  stub_.set("rdma_works", 0);  // the device could, the system does not
  const auto backend = open();
  EXPECT_FALSE(backend->rdma());
  const auto place = backend->reserve(kChunk).value();
  EXPECT_TRUE(backend->map(*place, Chunks{0}).ok());
}

TEST_F(CudaBackendTest, EverythingIsMappedBeforeAccessIsSetAndTheDeviceWaitedForBeforeUnmap) {
  const auto backend = open();
  const auto place = backend->reserve(3 * kChunk).value();
  ASSERT_TRUE(backend->map(*place, Chunks{1, 0, 5}).ok());
  std::vector<std::byte> host(3 * kChunk);
  ASSERT_TRUE(backend->copy_in(place->data(), host.data(), host.size()).ok());
  ASSERT_TRUE(backend->unmap(*place).ok());
  EXPECT_EQ(stub_.called("cuMemSetAccess"), 1);
  EXPECT_LT(position("cuMemMap", 3), position("cuMemSetAccess"));
  EXPECT_LT(position("cuMemSetAccess"), position("cuMemcpyHtoDAsync"));
  EXPECT_LT(position("cuMemcpyHtoDAsync"), position("cuEventRecord"));
  EXPECT_LT(position("cuEventRecord"), position("cuEventSynchronize"));
  EXPECT_LT(position("cuEventSynchronize"), position("cuCtxSynchronize"));
  EXPECT_LT(position("cuCtxSynchronize"), position("cuMemUnmap"));
  EXPECT_EQ(stub_.count("used_bytes"), 0);
  EXPECT_EQ(stub_.count("violations"), 0);
}

// Runs `body` with the nth call of `function` failing, for n from 1 until a run does not get there.
template <class Body>
void at_every_call(const CudaStub& stub, const char* function, const Body& body) {
  for (int nth = 1; nth < 100; ++nth) {
    stub.reset();
    if (!body(function, nth)) return;
    EXPECT_TRUE(stub.clean()) << function << " call " << nth << " fails\n" << stub.calls();
  }
  ADD_FAILURE() << function << " never ran out of calls";
}

TEST_F(CudaBackendTest, AMapThatFailsAnywhereRollsBackToNothing) {
  for (const char* function : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    int failed = 0;
    at_every_call(stub_, function, [&](const char* name, int nth) {
      const auto backend = open();
      const auto place = backend->reserve(4 * kChunk).value();
      stub_.fail(name, nth, cuda::kOutOfMemory);
      const Status status = backend->map(*place, Chunks{0, 1, 2, 3});
      if (status.ok()) return false;
      ++failed;
      EXPECT_EQ(status.code(), Code::NO_CAPACITY);
      EXPECT_NE(status.text().find(name), std::string::npos) << status.text();
      EXPECT_NE(status.text().find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos);
      EXPECT_FALSE(place->mapped());
      EXPECT_EQ(stub_.count("used_bytes"), 0);
      EXPECT_EQ(stub_.count("mappings"), 0);
      EXPECT_TRUE(backend->map(*place, Chunks{3, 2, 1, 0}).ok());
      return true;
    });
    EXPECT_EQ(failed, std::string(function) == "cuMemSetAccess" ? 1 : 4);
  }
}

TEST_F(CudaBackendTest, AnOpenThatFailsAnywhereLeavesNothing) {
  for (const char* function :
       {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain", "cuMemGetAllocationGranularity", "cuMemGetInfo",
        "cuStreamCreate", "cuEventCreate"}) {
    int failed = 0;
    at_every_call(stub_, function, [&](const char* name, int nth) {
      stub_.fail(name, nth, cuda::kNotPermitted);
      const auto backend = CudaBackend::open(options());
      if (!backend) {
        EXPECT_EQ(backend.error().code(), Code::IO) << backend.error().text();
      }
      // Without the network adapters' memory the device still opens.
      const bool reached = stub_.called(name) >= nth;
      failed += reached ? 1 : 0;
      return reached;
    });
    EXPECT_GE(failed, 1) << function;
  }
}

TEST_F(CudaBackendTest, WhatCannotBeGivenBackStaysTakenUntilItCan) {
  for (const char* function : {"cuMemUnmap", "cuMemRelease"})
    at_every_call(stub_, function, [&](const char* name, int nth) {
      const auto backend = open();
      const auto place = backend->reserve(3 * kChunk).value();
      EXPECT_TRUE(backend->map(*place, Chunks{0, 1, 2}).ok());
      stub_.fail(name, nth, cuda::kInvalidValue);
      const Status status = backend->unmap(*place);
      if (status.ok()) return false;
      EXPECT_EQ(status.code(), Code::IO);
      EXPECT_TRUE(place->mapped());
      EXPECT_EQ(stub_.count("used_bytes"), static_cast<long>(kChunk));  // the others are free
      const auto other = backend->reserve(kChunk).value();
      const auto claimed = static_cast<ChunkIndex>(nth - 1);
      EXPECT_EQ(backend->map(*other, Chunks{claimed}).code(), Code::INVALID_ARGUMENT);
      std::byte host{};
      EXPECT_EQ(backend->copy_in(place->data(), &host, 1).code(), Code::INVALID_ARGUMENT);
      EXPECT_TRUE(backend->unmap(*place).ok());
      EXPECT_TRUE(backend->map(*other, Chunks{claimed}).ok());
      return true;
    });
}

TEST_F(CudaBackendTest, ARollbackThatFailsIsRepairedByTheNextMap) {
  {
    const auto backend = open();
    const auto place = backend->reserve(2 * kChunk).value();
    stub_.fail("cuMemMap", 2, cuda::kInvalidValue);
    stub_.fail("cuMemUnmap", 1, cuda::kInvalidValue);
    EXPECT_EQ(backend->map(*place, Chunks{0, 1}).code(), Code::IO);
    EXPECT_FALSE(place->mapped());
    EXPECT_EQ(stub_.count("mappings"), 1);
    EXPECT_TRUE(backend->map(*place, Chunks{0, 1}).ok());
  }
  EXPECT_TRUE(stub_.clean()) << stub_.calls();
}

TEST_F(CudaBackendTest, AShortCopyIsPolledForAndALongOneSleptOn) {
  CudaOptions patient = options();
  patient.poll_for = Duration{60 * kSecond.ns};
  const auto polling = CudaBackend::open(patient).value();
  const auto place = polling->reserve(kChunk).value();
  ASSERT_TRUE(polling->map(*place, Chunks{0}).ok());
  std::byte host[16] = {std::byte{7}};
  stub_.set("polls", 5);
  ASSERT_TRUE(polling->copy_in(place->data(), host, sizeof host).ok());
  EXPECT_EQ(stub_.called("cuEventQuery"), 5);
  EXPECT_EQ(stub_.called("cuEventSynchronize"), 0);
  EXPECT_EQ(place->data()[0], std::byte{7});
  stub_.fail("cuEventQuery", 3, cuda::kIllegalAddress);
  EXPECT_EQ(polling->copy_in(place->data(), host, sizeof host).code(), Code::LOST);
  stub_.reset();
  const auto sleeping = open();
  const auto other = sleeping->reserve(kChunk).value();
  ASSERT_TRUE(sleeping->map(*other, Chunks{0}).ok());
  ASSERT_TRUE(sleeping->copy_in(other->data(), host, sizeof host).ok());
  EXPECT_GE(stub_.called("cuEventQuery"), 1);
  EXPECT_EQ(stub_.called("cuEventSynchronize"), 1);
}

TEST_F(CudaBackendTest, ACopyThatFailsIsStillWaitedFor) {
  for (const char* function : {"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemsetD8Async",
                               "cuEventRecord", "cuEventSynchronize"})
    at_every_call(stub_, function, [&](const char* name, int nth) {
      const auto backend = open();
      const auto place = backend->reserve(kChunk).value();
      EXPECT_TRUE(backend->map(*place, Chunks{0}).ok());
      const std::unique_ptr<std::byte, decltype(&std::free)> host(
          static_cast<std::byte*>(std::aligned_alloc(4096, kChunk)), &std::free);
      const auto pin = backend->pin({host.get(), kChunk / 2}).value();  // so a copy has two pieces
      stub_.fail(name, nth, cuda::kInvalidValue);
      Status status = backend->copy_in(place->data(), host.get(), kChunk);
      if (status.ok()) status = backend->copy_out(host.get(), place->data(), kChunk);
      if (status.ok()) status = backend->zero(place->data(), kChunk);
      const bool failed = !status.ok();
      EXPECT_TRUE(backend->unmap(*place).ok());
      EXPECT_EQ(stub_.count("violations"), 0) << "unmapped with work under way";
      return failed;
    });
}

TEST_F(CudaBackendTest, ReservingPinningAndAskingFailCleanly) {
  {
    const auto backend = open();
    stub_.fail("cuMemAddressReserve", 1, cuda::kOutOfMemory);
    EXPECT_EQ(backend->reserve(kChunk).error().code(), Code::NO_CAPACITY);
    stub_.fail("cuMemGetInfo", 1, cuda::kInvalidValue);
    EXPECT_EQ(backend->memory().error().code(), Code::IO);
    std::byte host[8];
    stub_.fail("cuMemHostRegister", 1, cuda::kOutOfMemory);
    EXPECT_EQ(backend->pin(host).error().code(), Code::NO_CAPACITY);
    const auto pin = backend->pin(host).value();
    EXPECT_EQ(backend->pin(host).error().code(), Code::IO);  // twice
    EXPECT_EQ(stub_.count("registrations"), 1);
    EXPECT_EQ(backend->pin({}).error().code(), Code::INVALID_ARGUMENT);
  }
  EXPECT_TRUE(stub_.clean()) << stub_.calls();
}

TEST_F(CudaBackendTest, AReleaseIsProvenByTheDevicesFreeMemory) {
  const auto cycle = [&](Duration within, long lag_calls) {
    CudaOptions patient = options();
    patient.prove_free_within = within;
    const auto backend = CudaBackend::open(patient).value();
    const auto place = backend->reserve(2 * kChunk).value();
    stub_.set("lag_calls", lag_calls);  // the driver clears the memory first
    EXPECT_TRUE(backend->map(*place, Chunks{0, 1}).ok());
    EXPECT_TRUE(backend->unmap(*place).ok());
    return backend->unproven_releases();
  };
  EXPECT_EQ(cycle(Duration{60 * kSecond.ns}, 5), 0U);
  EXPECT_GE(stub_.called("cuMemGetInfo"), 5);
  EXPECT_EQ(cycle(Duration{5 * kMillisecond.ns}, 1'000'000), 1U);
}

TEST_F(CudaBackendTest, AfterAStickyErrorEveryCallSaysSo) {
  const auto backend = open();
  const auto place = backend->reserve(kChunk).value();
  ASSERT_TRUE(backend->map(*place, Chunks{0}).ok());
  std::byte host[16] = {};
  stub_.fail("cuMemcpyHtoDAsync", 1, cuda::kIllegalAddress);
  const Status first = backend->copy_in(place->data(), host, sizeof host);
  EXPECT_EQ(first.code(), Code::LOST);
  EXPECT_NE(first.text().find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  const std::string calls = stub_.calls();
  EXPECT_EQ(backend->copy_out(host, place->data(), 1), first);
  EXPECT_EQ(backend->zero(place->data(), 1), first);
  EXPECT_EQ(backend->unmap(*place), first);
  EXPECT_EQ(backend->reserve(kChunk).error(), first);
  EXPECT_EQ(backend->memory().error(), first);
  EXPECT_EQ(backend->pin(host).error(), first);
  EXPECT_EQ(stub_.calls(), calls) << "the driver is not called any more";
}

TEST_F(CudaBackendTest, AStickyErrorAtAnyCallIsNeverTheEndOfTheProcess) {
  std::set<std::string> functions;
  const auto life = [&] {
    auto backend = CudaBackend::open(options());
    if (!backend) return;
    const auto place = (*backend)->reserve(2 * kChunk);
    if (!place) return;
    std::vector<std::byte> host(4096);
    const auto pin = (*backend)->pin(host);
    if (!(*backend)->map(**place, Chunks{0, 1}).ok()) return;
    static_cast<void>((*backend)->copy_in((*place)->data(), host.data(), host.size()));
    static_cast<void>((*backend)->copy_out(host.data(), (*place)->data(), host.size()));
    static_cast<void>((*backend)->zero((*place)->data(), host.size()));
    static_cast<void>((*backend)->unmap(**place));
  };
  life();
  std::istringstream lines(stub_.calls());
  for (std::string line; std::getline(lines, line);) functions.insert(line);
  EXPECT_GE(functions.size(), 25U);
  for (const std::string& function : functions)
    for (const int code : {cuda::kIllegalAddress, cuda::kInvalidValue, cuda::kUnknown}) {
      stub_.reset();
      stub_.fail(function.c_str(), 1, code);
      life();
      EXPECT_GE(stub_.called(function), 1);
      EXPECT_EQ(stub_.count("violations"), 0) << function << " " << code;
    }
}

}  // namespace
}  // namespace plexrl::device
