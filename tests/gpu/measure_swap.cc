// SPDX-License-Identifier: Apache-2.0
// Rows device-host and host-device: the backend's copies between mapped chunks and a pinned pool,
// beside raw asynchronous copies between plain device memory and memory that the driver pinned, in
// turns. Rows both: one copy each way at the same time. Row switch: a whole suspend and resume.
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <thread>

#include "base/unique_fd.h"
#include "device/cuda_backend.h"
#include "gpu/gpu_run.h"
#include "gpu/raw_driver.h"

namespace plexrl::gpu {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Host memory as plexrld makes it: a memfd, touched, mapped for good.
class Pool {
 public:
  explicit Pool(std::size_t bytes) : fd_(::memfd_create("gpu-check", MFD_CLOEXEC)), bytes_(bytes) {
    if (!fd_ || ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) return;
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(), 0);
    if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
  }
  ~Pool() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::span<std::byte> all() const { return {data_, bytes_}; }

 private:
  UniqueFd fd_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

// Both sides of the comparison, `most` bytes each.
struct Bench {
  std::unique_ptr<device::CudaBackend> backend;
  std::unique_ptr<Pool> pool, second_pool;
  std::unique_ptr<device::HostPin> pin, second_pin;
  std::unique_ptr<device::Reservation> place, second_place;
  std::unique_ptr<device::CudaDevice> device;
  std::unique_ptr<RawDriver> raw;
  std::byte* raw_host = nullptr;
  device::cuda::DevicePtr raw_device = 0;

  Bench() = default;
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    if (raw_host != nullptr) raw->host_free(raw_host);
    if (raw_device != 0) raw->device_free(raw_device);
  }
};

std::vector<device::ChunkIndex> chunk_range(std::size_t first, std::size_t count) {
  std::vector<device::ChunkIndex> chunks(count);
  std::iota(chunks.begin(), chunks.end(), static_cast<device::ChunkIndex>(first));
  return chunks;
}

Status open_pool(Bench& bench, std::size_t bytes, std::unique_ptr<Pool>& pool,
                 std::unique_ptr<device::HostPin>& pin) {
  pool = std::make_unique<Pool>(bytes);
  if (pool->data() == nullptr)
    return error(Code::NO_CAPACITY, "no %zu bytes of host memory for a pool", bytes);
  PLEXRL_ASSIGN(pin, bench.backend->pin(pool->all()));
  return {};
}

Status open_bench(const GpuOptions& given, std::size_t most, std::size_t chunk, Bench& bench) {
  device::CudaOptions options;
  options.library = given.library;
  options.device = given.device;
  options.chunk_bytes = chunk;
  options.chunk_count = 2 * (most / chunk);
  PLEXRL_ASSIGN(bench.backend, device::CudaBackend::open(options));
  PLEXRL_TRY(open_pool(bench, most, bench.pool, bench.pin));
  PLEXRL_TRY(open_pool(bench, most / 4, bench.second_pool, bench.second_pin));
  PLEXRL_ASSIGN(bench.place, bench.backend->reserve(most));
  PLEXRL_ASSIGN(bench.second_place, bench.backend->reserve(most / 4));
  PLEXRL_TRY(bench.backend->map(*bench.place, chunk_range(0, most / chunk)));
  PLEXRL_TRY(bench.backend->map(*bench.second_place, chunk_range(most / chunk, most / 4 / chunk)));
  PLEXRL_ASSIGN(bench.device, device::CudaDevice::open(given.library, given.device, false));
  PLEXRL_ASSIGN(auto raw, RawDriver::open(given.library, *bench.device));
  bench.raw = std::make_unique<RawDriver>(raw);
  PLEXRL_ASSIGN(bench.raw_host, bench.raw->host_alloc(most));
  PLEXRL_ASSIGN(bench.raw_device, bench.raw->device_alloc(most));
  return {};
}

Result<double> timed(const std::function<Status()>& body) {
  const double start = seconds_now();
  PLEXRL_TRY(body());
  return seconds_now() - start;
}

Status one_size(GpuRun& run, Bench& bench, bool out, std::size_t bytes) {
  std::vector<double> ours, raw;
  const int turns = bytes >= 1024 * kMiB ? 5 : 9;
  for (int turn = 0; turn <= turns; ++turn) {  // the first one warms up
    PLEXRL_ASSIGN(
        const double mine, timed([&] {
          return out ? bench.backend->copy_out(bench.pool->data(), bench.place->data(), bytes)
                     : bench.backend->copy_in(bench.place->data(), bench.pool->data(), bytes);
        }));
    PLEXRL_ASSIGN(const double theirs,
                  out ? bench.raw->time_out(bench.raw_host, bench.raw_device, bytes)
                      : bench.raw->time_in(bench.raw_device, bench.raw_host, bytes));
    if (turn == 0) continue;
    ours.push_back(mine);
    raw.push_back(theirs);
  }
  const double gbps = gb_per_s(bytes, median(ours));
  const double raw_gbps = gb_per_s(bytes, median(raw));
  run.row(out ? "device-host" : "host-device", {{"bytes", std::uint64_t{bytes}},
                                                {"gbps", gbps},
                                                {"raw_gbps", raw_gbps},
                                                {"ratio", gbps / raw_gbps}});
  return {};
}

Status all_sizes(GpuRun& run, Bench& bench, std::size_t most) {
  for (const bool out : {true, false})
    for (std::size_t bytes = kMiB; bytes <= most; bytes *= 4)
      PLEXRL_TRY(one_size(run, bench, out, bytes));
  return {};
}

// A quarter of the memory goes out while another quarter comes in.
Status both_ways(GpuRun& run, Bench& bench, std::size_t bytes) {
  std::vector<double> took;
  for (int turn = 0; turn < 5; ++turn) {
    Status out, in;
    const double start = seconds_now();
    std::thread other(
        [&] { out = bench.backend->copy_out(bench.pool->data(), bench.place->data(), bytes); });
    in = bench.backend->copy_in(bench.second_place->data(), bench.second_pool->data(), bytes);
    other.join();
    took.push_back(seconds_now() - start);
    PLEXRL_TRY(out);
    PLEXRL_TRY(in);
  }
  run.row("both",
          {{"bytes", std::uint64_t{2 * bytes}}, {"gbps", gb_per_s(2 * bytes, median(took))}});
  return {};
}

Status whole_switch(GpuRun& run, Bench& bench, std::size_t bytes, std::size_t chunk) {
  device::CudaBackend& backend = *bench.backend;
  std::vector<double> out, unmap, map, in;
  const auto step = [&](std::vector<double>& into, const std::function<Status()>& body) -> Status {
    PLEXRL_ASSIGN(const double took, timed(body));
    into.push_back(took);
    return {};
  };
  for (int turn = 0; turn < 3; ++turn) {
    PLEXRL_TRY(step(
        out, [&] { return backend.copy_out(bench.pool->data(), bench.place->data(), bytes); }));
    PLEXRL_TRY(step(unmap, [&] { return backend.unmap(*bench.place); }));
    PLEXRL_TRY(step(map, [&] { return backend.map(*bench.place, chunk_range(0, bytes / chunk)); }));
    PLEXRL_TRY(
        step(in, [&] { return backend.copy_in(bench.place->data(), bench.pool->data(), bytes); }));
  }
  run.row("suspend-resume", {{"bytes", std::uint64_t{bytes}},
                             {"chunk_bytes", std::uint64_t{chunk}},
                             {"copy_out_s", median(out)},
                             {"unmap_s", median(unmap)},
                             {"map_s", median(map)},
                             {"copy_in_s", median(in)},
                             {"unproven_releases", backend.unproven_releases()}});
  return {};
}

}  // namespace

void measure_swap(GpuRun& run) {
  const std::size_t most = run.options.quick ? 16 * kMiB : 4096 * kMiB;
  const std::size_t chunk = run.options.quick ? 2 * kMiB : 64 * kMiB;
  Bench bench;
  if (const Status opened = open_bench(run.options, most, chunk, bench); !opened.ok()) {
    for (const char* name : {"swap", "both ways", "switch"}) run.count(name, opened);
    return;
  }
  run.count("swap", all_sizes(run, bench, most));
  run.count("both ways", both_ways(run, bench, most / 4));
  run.count("switch", whole_switch(run, bench, most, chunk));
}

}  // namespace plexrl::gpu
