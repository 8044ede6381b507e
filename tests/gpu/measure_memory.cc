// SPDX-License-Identifier: Apache-2.0
// Rows map-cost: what each driver call costs per chunk size. Rows pin: how fast host memory becomes
// pinned, by the way in which it was made.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "device/cuda_device.h"
#include "gpu/gpu_run.h"
#include "gpu/raw_driver.h"

namespace plexrl::gpu {
namespace {

namespace cuda = device::cuda;
constexpr std::size_t kMiB = std::size_t{1} << 20;

struct MapCosts {
  std::vector<double> create, map, access, unmap, release;
};

Status clock_call(std::vector<double>& into, const std::function<Status()>& call) {
  const double start = seconds_now();
  PLEXRL_TRY(call());
  into.push_back((seconds_now() - start) * 1e6);
  return {};
}

Status map_cycle(const device::CudaDevice& device, cuda::DevicePtr at, std::size_t bytes,
                 MapCosts& costs) {
  const device::CudaDriver& driver = device.driver();
  cuda::MemHandle handle = 0;
  PLEXRL_TRY(clock_call(costs.create, [&] {
    return PLEXRL_CUDA(driver, memory_create, &handle, bytes, &device.memory(), 0);
  }));
  Status status = clock_call(
      costs.map, [&] { return PLEXRL_CUDA(driver, memory_map, at, bytes, 0, handle, 0); });
  if (status.ok()) {
    status = clock_call(costs.access, [&] {
      return PLEXRL_CUDA(driver, set_access, at, bytes, &device.access(), 1);
    });
    const Status unmapped =
        clock_call(costs.unmap, [&] { return PLEXRL_CUDA(driver, memory_unmap, at, bytes); });
    if (status.ok()) status = unmapped;
  }
  const Status released =
      clock_call(costs.release, [&] { return PLEXRL_CUDA(driver, memory_release, handle); });
  return status.ok() ? released : status;
}

Status map_costs_of(GpuRun& run, const device::CudaDevice& device, std::size_t bytes) {
  const device::CudaDevice::Entered entered(device);
  PLEXRL_TRY(entered.status());
  cuda::DevicePtr at = 0;
  PLEXRL_TRY(PLEXRL_CUDA(device.driver(), address_reserve, &at, bytes, 0, 0, 0));
  MapCosts costs;
  Status status;
  for (int turn = 0; turn < 9 && status.ok(); ++turn) status = map_cycle(device, at, bytes, costs);
  const Status freed = PLEXRL_CUDA(device.driver(), address_free, at, bytes);
  PLEXRL_TRY(status);
  PLEXRL_TRY(freed);
  run.row("map-cost", {{"bytes", std::uint64_t{bytes}},
                       {"create_us", median(costs.create)},
                       {"map_us", median(costs.map)},
                       {"set_access_us", median(costs.access)},
                       {"unmap_us", median(costs.unmap)},
                       {"release_us", median(costs.release)}});
  return {};
}

// ---- pinning
// -------------------------------------------------------------------------------------

struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int fd = -1;

  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (data != nullptr) ::munmap(data, bytes);
    if (fd >= 0) ::close(fd);
  }
  [[nodiscard]] Status make(std::size_t size, int flags, bool shared) {
    if (shared) {
      fd = ::memfd_create("gpu-check", MFD_CLOEXEC);
      if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(size)) != 0)
        return errno_error(Code::NO_CAPACITY, errno, "%zu bytes", size);
    }
    void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | flags, fd, 0);
    if (at == MAP_FAILED) return errno_error(Code::NO_CAPACITY, errno, "%zu bytes", size);
    data = static_cast<std::byte*>(at);
    bytes = size;
    return {};
  }
  void touch(unsigned threads) const {
    std::vector<std::thread> workers;
    const std::size_t part = bytes / threads;
    for (unsigned t = 0; t < threads; ++t)
      workers.emplace_back([&, t] { std::memset(data + t * part, 1, part); });
    for (std::thread& worker : workers) worker.join();
  }
};

struct PinWay {
  const char* name;
  int flags;
  bool shared;
  bool huge_advice;
  bool parallel;
};
constexpr PinWay kWays[] = {{"register-serial-touch", 0, false, false, false},
                            {"register-parallel-touch-thp", 0, false, true, true},
                            {"register-hugetlb", MAP_HUGETLB, false, false, true},
                            {"register-memfd", 0, true, false, true}};

Status pin_row(GpuRun& run, const char* way, std::size_t bytes, double touch_s, double pin_s) {
  run.row("pin", {{"way", std::string_view(way)},
                  {"bytes", std::uint64_t{bytes}},
                  {"touch_s", touch_s},
                  {"pin_s", pin_s},
                  {"gbps", gb_per_s(bytes, touch_s + pin_s)}});
  return {};
}

Status pin_by(GpuRun& run, const device::CudaDevice& device, const PinWay& way, std::size_t bytes) {
  Region region;
  if (const Status made = region.make(bytes, way.flags, way.shared); !made.ok()) {
    if (way.flags == 0) return made;
    std::fprintf(stderr, "        no row %s: %s (set nr_hugepages)\n", way.name,
                 made.text().c_str());
    return {};
  }
  if (way.huge_advice) ::madvise(region.data, bytes, MADV_HUGEPAGE);
  const double start = seconds_now();
  region.touch(way.parallel ? std::max(1U, std::thread::hardware_concurrency()) : 1);
  const double touched = seconds_now();
  const device::CudaDevice::Entered entered(device);
  PLEXRL_TRY(entered.status());
  PLEXRL_TRY(
      PLEXRL_CUDA(device.driver(), host_register, region.data, bytes, cuda::kHostRegisterPortable));
  const double pinned = seconds_now();
  PLEXRL_TRY(PLEXRL_CUDA(device.driver(), host_unregister, region.data));
  return pin_row(run, way.name, bytes, touched - start, pinned - touched);
}

Status pin_all(GpuRun& run, const device::CudaDevice& device, std::size_t bytes) {
  PLEXRL_ASSIGN(const RawDriver raw, RawDriver::open(run.options.library, device));
  const double start = seconds_now();
  PLEXRL_ASSIGN(std::byte* const at, raw.host_alloc(bytes));
  const double took = seconds_now() - start;
  raw.host_free(at);
  PLEXRL_TRY(pin_row(run, "host-alloc", bytes, 0, took));
  for (const PinWay& way : kWays) PLEXRL_TRY(pin_by(run, device, way, bytes).within(way.name));
  return {};
}

}  // namespace

void measure_map_costs(GpuRun& run) {
  const auto device =
      device::CudaDevice::open(run.options.library, run.options.device, /*rdma=*/true);
  Status status = device.status();
  for (const std::size_t mib : {2, 64, 256, 1024}) {
    if (!status.ok() || (run.options.quick && mib > 64)) break;
    status = map_costs_of(run, **device, mib * kMiB);
  }
  run.count("map costs", status);
}

void measure_pinning(GpuRun& run) {
  const auto device =
      device::CudaDevice::open(run.options.library, run.options.device, /*rdma=*/false);
  const std::size_t bytes = run.options.quick ? 4 * kMiB : 4096 * kMiB;
  run.count("pinning", device ? pin_all(run, **device, bytes) : device.error());
}

}  // namespace plexrl::gpu
