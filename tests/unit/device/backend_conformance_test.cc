// SPDX-License-Identifier: Apache-2.0
// The suite of every DeviceBackend on cpu, fake, and cuda over the stub driver; and what only one
// of them promises.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "device/cpu_backend.h"
#include "device/cuda_backend.h"
#include "device/huge_pages.h"
#include "fakes/cuda_stub.h"
#include "fakes/fake_backend.h"
#include "gpu/device_suite.h"

namespace plexrl::device {
namespace {

constexpr std::size_t kChunk = 64 * 1024;
constexpr std::size_t kCudaChunk = std::size_t{2} << 20;  // the stub's granularity, as a GPU's

std::unique_ptr<DeviceBackend> make_cpu() {
  auto pool = create_cpu_pool("test-device", kChunk, kSuiteChunks);
  return open_cpu_backend(std::move(pool).value(), kChunk, kSuiteChunks).value();
}

// In huge pages, where there are any, and so with the pool mapped for good.
std::unique_ptr<CpuBackend> make_whole_cpu() {
  auto pool = create_cpu_pool("test-device", kHugePage, kSuiteChunks).value();
  auto marks = PoolMarks::open(pool.get(), kHugePage, kSuiteChunks).value();
  auto backend =
      std::make_unique<CpuBackend>(std::move(pool), kHugePage, kSuiteChunks, std::move(marks));
  backend->begin_whole_mapping();
  EXPECT_TRUE(backend->await_whole_mapping().ok());
  return backend;
}

std::unique_ptr<DeviceBackend> make_fake() {
  return FakeBackend::create(kChunk, kSuiteChunks).value();
}

std::unique_ptr<DeviceBackend> make_cuda() {
  CudaOptions options;
  options.library = PLEXRL_CUDA_STUB;
  options.chunk_bytes = kCudaChunk;
  options.chunk_count = kSuiteChunks;
  return open_cuda_backend(options).value();
}

struct Kind {
  std::string name;
  std::function<std::unique_ptr<DeviceBackend>()> make;
};
const std::vector<Kind> kKinds = {
    {"cpu", make_cpu}, {"cpu_whole", make_whole_cpu}, {"fake", make_fake}, {"cuda", make_cuda}};

using Param = std::tuple<Kind, DeviceCase>;
// The cpu backend faults where others refuse.
std::vector<Param> params() {
  std::vector<Param> out;
  for (const Kind& kind : kKinds)
    for (const DeviceCase& one : device_cases())
      if (!one.refuses_unmapped || !kind.name.starts_with("cpu")) out.emplace_back(kind, one);
  return out;
}
class BackendConformance : public ::testing::TestWithParam<Param> {
 protected:
  CudaStub stub_{PLEXRL_CUDA_STUB};
};

TEST_P(BackendConformance, Case) {
  const auto& [kind, one] = GetParam();
  stub_.reset();
  {
    const auto backend = kind.make();
    check::Checker check;
    one.run(*backend, check);
    for (const std::string& failure : check.failures()) ADD_FAILURE() << failure;
  }
  EXPECT_TRUE(stub_.clean()) << stub_.calls();
}

std::string case_name(const ::testing::TestParamInfo<Param>& info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(All, BackendConformance, ::testing::ValuesIn(params()), case_name);

class BackendDeathTest : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<DeviceBackend> backend_ = GetParam().make();
};

TEST_P(BackendDeathTest, UseWithoutMemoryFaults) {
  const auto place = backend_->reserve(1).value();
  EXPECT_DEATH({ place->data()[0] = std::byte{1}; }, "");
}

TEST_P(BackendDeathTest, UseAfterUnmapFaults) {
  const auto place = backend_->reserve(1).value();
  ASSERT_TRUE(backend_->map(*place, std::vector<ChunkIndex>{0}).ok());
  place->data()[0] = std::byte{1};
  ASSERT_TRUE(backend_->unmap(*place).ok());
  EXPECT_DEATH({ place->data()[0] = std::byte{2}; }, "");
}

INSTANTIATE_TEST_SUITE_P(All, BackendDeathTest, ::testing::ValuesIn(kKinds),
                         [](const auto& one) { return one.param.name; });

// ---- cpu
// -----------------------------------------------------------------------------------------

TEST(CpuBackend, ChunksKeepTheirContentsAndOrder) {
  const auto backend = make_cpu();
  const auto place = backend->reserve(2 * kChunk).value();
  ASSERT_TRUE(backend->map(*place, std::vector<ChunkIndex>{5, 2}).ok());
  std::memset(place->data(), 0x11, kChunk);
  std::memset(place->data() + kChunk, 0x22, kChunk);
  ASSERT_TRUE(backend->unmap(*place).ok());
  ASSERT_TRUE(backend->map(*place, std::vector<ChunkIndex>{2, 5}).ok());
  EXPECT_EQ(place->data()[0], std::byte{0x22});
  EXPECT_EQ(place->data()[2 * kChunk - 1], std::byte{0x11});
}

TEST(CpuBackend, AnotherReservationSeesTheSameChunk) {
  const auto backend = make_cpu();
  const auto first = backend->reserve(kChunk).value();
  const auto second = backend->reserve(kChunk).value();
  ASSERT_TRUE(backend->map(*first, std::vector<ChunkIndex>{4}).ok());
  std::memset(first->data(), 0x5a, kChunk);
  ASSERT_TRUE(backend->unmap(*first).ok());
  ASSERT_TRUE(backend->map(*second, std::vector<ChunkIndex>{4}).ok());
  EXPECT_EQ(second->data()[kChunk - 1], std::byte{0x5a});
}

// A CpuBackend whose mapping calls fail on demand.
class FailingCpuBackend final : public CpuBackend {
 public:
  FailingCpuBackend() : CpuBackend(create_cpu_pool("t", kChunk, 8).value(), kChunk, 8, {}) {}
  int fail_run = 0;

 protected:
  Status map_run(AddressRange& range, const ChunkRun& run, Fill fill) override {
    if (fail_run != 0 && --fail_run == 0) return error(Code::IO, "fault on demand");
    return CpuBackend::map_run(range, run, fill);
  }
};

TEST(CpuBackend, AFailedMapRollsBackToNothing) {
  FailingCpuBackend backend;
  const auto place = backend.reserve(3 * kChunk).value();
  backend.fail_run = 2;  // the second of two runs
  EXPECT_EQ(backend.map(*place, std::vector<ChunkIndex>{1, 2, 5}).code(), Code::IO);
  EXPECT_FALSE(place->mapped());
  EXPECT_TRUE(backend.map(*place, std::vector<ChunkIndex>{1, 2, 5}).ok());
}

TEST(CpuBackendDeathTest, AfterARollbackTheFirstRunIsGoneToo) {
  FailingCpuBackend backend;
  const auto place = backend.reserve(2 * kChunk).value();
  backend.fail_run = 2;
  ASSERT_FALSE(backend.map(*place, std::vector<ChunkIndex>{1, 5}).ok());
  EXPECT_DEATH({ place->data()[0] = std::byte{1}; }, "");
}

// Of this thread while it reads one byte. Sanitizers would fault their own memory in beside it.
[[gnu::no_sanitize("address", "thread")]] long faults_of_reading(const std::byte* at) {
  rusage before{};
  rusage after{};
  ::getrusage(RUSAGE_THREAD, &before);
  static_cast<void>(*static_cast<const volatile std::byte*>(at));
  ::getrusage(RUSAGE_THREAD, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(CpuBackend, SmallSegmentsAreCopiedPastTheirOwnMappingWhichSettleFills) {
  const UniqueFd probe = create_cpu_pool("probe", kHugePage, 1).value();
  if (AddressRange::pages_of(probe.get(), kHugePage) != AddressRange::Pages::kHuge)
    GTEST_SKIP() << "no huge pages here";
  const auto backend = make_whole_cpu();
  const auto small = backend->reserve(kHugePage + 1000).value();
  const std::vector<std::byte> bytes(small->bytes(), std::byte{0x42});
  ASSERT_TRUE(backend->map_to_copy(*small, std::vector<ChunkIndex>{6, 1}).ok());
  ASSERT_TRUE(backend->copy_into(*small, 0, bytes.data(), bytes.size()).ok());
  ASSERT_TRUE(backend->zero_tail(*small).ok());
  const std::byte* const last = small->data() + small->bytes() - 1;
  EXPECT_EQ(faults_of_reading(last), 1) << "nobody has used it yet";
  EXPECT_EQ(*last, std::byte{0x42});
  ASSERT_TRUE(backend->unmap(*small).ok());
  ASSERT_TRUE(backend->map_to_copy(*small, std::vector<ChunkIndex>{6, 1}).ok());
  backend->settle(*small);
  EXPECT_EQ(faults_of_reading(small->data()) + faults_of_reading(last), 0);
  const auto large = backend->reserve(3 * kHugePage).value();
  ASSERT_TRUE(backend->map_to_copy(*large, std::vector<ChunkIndex>{2, 3, 4}).ok());
  EXPECT_EQ(faults_of_reading(large->data()), 0) << "filled at once";
}

// ---- fake
// ----------------------------------------------------------------------------------------

TEST(FakeBackend, MemoryJustMappedIsGarbage) {
  const auto backend = FakeBackend::create(kChunk, 8).value();
  const auto place = backend->reserve(kChunk).value();
  ASSERT_TRUE(backend->map(*place, std::vector<ChunkIndex>{4}).ok());
  ASSERT_TRUE(backend->zero(place->data(), kChunk).ok());
  ASSERT_TRUE(backend->unmap(*place).ok());
  ASSERT_TRUE(backend->map(*place, std::vector<ChunkIndex>{4}).ok());
  EXPECT_EQ(place->data()[17], FakeBackend::kGarbage);
}

TEST(FakeBackend, CallsCostVirtualTimeOnly) {
  const auto backend = FakeBackend::create(kChunk, 8).value();
  backend->costs() = {Duration{1000}, Duration{500}, 1'000'000'000, 2'000'000'000};
  const auto place = backend->reserve(2 * kChunk).value();
  ASSERT_TRUE(backend->map(*place, std::vector<ChunkIndex>{4, 5}).ok());
  EXPECT_EQ(backend->spent().ns, 2000);
  std::vector<std::byte> host(kChunk);
  ASSERT_TRUE(backend->copy_in(place->data(), host.data(), kChunk).ok());
  EXPECT_EQ(backend->spent().ns, 2000 + 65536);
  ASSERT_TRUE(backend->zero(place->data(), kChunk).ok());
  ASSERT_TRUE(backend->unmap(*place).ok());
  EXPECT_EQ(backend->spent().ns, 2000 + 65536 + 32768 + 1000);
}

TEST(FakeBackend, EveryCallFailsOnDemandAndOnlyOnce) {
  const auto backend = FakeBackend::create(kChunk, 8).value();
  backend->faults().reserve = 1;
  EXPECT_EQ(backend->reserve(kChunk).error().code(), Code::IO);
  const auto place = backend->reserve(3 * kChunk).value();
  const std::vector<ChunkIndex> chunks = {0, 1, 2};
  for (int chunk = 1; chunk <= 3; ++chunk) {
    backend->faults().map = chunk;
    EXPECT_FALSE(backend->map(*place, chunks).ok());
    EXPECT_FALSE(place->mapped());
  }
  ASSERT_TRUE(backend->map(*place, chunks).ok());
  std::byte host{};
  backend->faults().copy_in = backend->faults().copy_out = backend->faults().zero = 1;
  EXPECT_FALSE(backend->copy_in(place->data(), &host, 1).ok());
  EXPECT_FALSE(backend->copy_out(&host, place->data(), 1).ok());
  EXPECT_FALSE(backend->zero(place->data(), 1).ok());
  EXPECT_TRUE(backend->copy_in(place->data(), &host, 1).ok());
  backend->faults().pin = 1;
  EXPECT_FALSE(backend->pin({&host, 1}).has_value());
  backend->faults().unmap = 1;
  EXPECT_FALSE(backend->unmap(*place).ok());
  EXPECT_TRUE(place->mapped());
  EXPECT_TRUE(backend->unmap(*place).ok());
}

TEST(FakeBackend, ALostDeviceStaysLost) {
  const auto backend = FakeBackend::create(kChunk, 8).value();
  const auto place = backend->reserve(kChunk).value();
  ASSERT_TRUE(backend->map(*place, std::vector<ChunkIndex>{0}).ok());
  backend->lose();
  std::byte host{};
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(backend->copy_in(place->data(), &host, 1).code(), Code::LOST);
    EXPECT_EQ(backend->unmap(*place).code(), Code::LOST);
    EXPECT_EQ(backend->memory().error().code(), Code::LOST);
    EXPECT_EQ(backend->reserve(1).error().code(), Code::LOST);
  }
}

}  // namespace
}  // namespace plexrl::device
