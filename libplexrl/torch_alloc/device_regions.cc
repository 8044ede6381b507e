// SPDX-License-Identifier: Apache-2.0
#include "torch_alloc/device_regions.h"

#include <sys/mman.h>

#include <cerrno>

#include "device/cuda_backend.h"

namespace plexrl::torch_alloc {
namespace {

// The usual granularity of device memory; regions of a few MiB must not take a large chunk each.
constexpr std::size_t kChunkBytes = 2U << 20;

unsigned long long number(std::uint64_t value) { return value; }

// The memfd, for the length of a copy.
class HostView {
 public:
  HostView(int fd, std::uint64_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0)) {}
  ~HostView() {
    if (data_ != MAP_FAILED) (void)::munmap(data_, bytes_);
  }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;
  [[nodiscard]] Status status() const {
    if (data_ != MAP_FAILED) return {};
    return errno_error(Code::NO_CAPACITY, errno, "map %llu bytes of host memory", number(bytes_));
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::uint64_t bytes_;
  void* data_;
};

}  // namespace

class DeviceRegionMemory final : public client::RegionMemory {
 public:
  DeviceRegionMemory(DeviceRegions& regions, std::unique_ptr<device::Reservation> place,
                     std::uint64_t bytes)
      : regions_(regions), place_(std::move(place)), bytes_(bytes) {}
  DeviceRegionMemory(const DeviceRegionMemory&) = delete;
  DeviceRegionMemory& operator=(const DeviceRegionMemory&) = delete;
  ~DeviceRegionMemory() override {
    place_.reset();  // unmaps
    regions_.give_back(chunks_);
  }

  [[nodiscard]] void* address() const override { return place_->data(); }
  [[nodiscard]] Status resume(int fd) override;
  [[nodiscard]] Status suspend(int fd) override;

 private:
  Status let_go();

  DeviceRegions& regions_;
  std::unique_ptr<device::Reservation> place_;
  std::uint64_t bytes_;
  std::vector<device::ChunkIndex> chunks_;  // while it is resumed
  bool has_contents_ = false;               // the memfd holds something
};

Status DeviceRegionMemory::let_go() {
  const Status status = regions_.backend().unmap(*place_);
  if (!status.ok()) return status;
  regions_.give_back(std::exchange(chunks_, {}));
  return {};
}

Status DeviceRegionMemory::resume(int fd) {
  if (!chunks_.empty()) return {};
  device::DeviceBackend& backend = regions_.backend();
  PLEXRL_ASSIGN(chunks_, regions_.take(bytes_));
  Status status = backend.map(*place_, chunks_);
  if (!status.ok()) {
    regions_.give_back(std::exchange(chunks_, {}));
    return status;
  }
  if (has_contents_) {
    const HostView host(fd, bytes_);
    status = host.status();
    if (status.ok()) status = backend.copy_in(place_->data(), host.data(), bytes_);
  } else {
    status = backend.zero(place_->data(), bytes_);
  }
  if (!status.ok()) (void)let_go();
  return status;
}

Status DeviceRegionMemory::suspend(int fd) {
  if (chunks_.empty()) return {};
  const HostView host(fd, bytes_);
  PLEXRL_TRY(host.status());
  PLEXRL_TRY(regions_.backend().copy_out(host.data(), place_->data(), bytes_));
  has_contents_ = true;
  return let_go();
}

DeviceRegions::DeviceRegions(std::unique_ptr<device::DeviceBackend> backend)
    : backend_(std::move(backend)) {
  for (std::size_t chunk = 0; chunk < backend_->chunk_count(); ++chunk)
    free_.insert(static_cast<device::ChunkIndex>(chunk));
}

Result<std::unique_ptr<DeviceRegions>> DeviceRegions::open_cuda(const std::string& library,
                                                                int device) {
  device::CudaOptions options;
  options.library = library;
  options.device = device;
  options.chunk_bytes = kChunkBytes;
  options.chunk_count = 1;
  // Chunks are a claim on the device's size, which has to be asked for first.
  PLEXRL_ASSIGN(auto small, device::open_cuda_backend(options));
  PLEXRL_ASSIGN(const device::DeviceMemory memory, small->memory());
  options.chunk_count = memory.total_bytes / kChunkBytes;
  PLEXRL_ASSIGN(auto backend, device::open_cuda_backend(options));
  return std::make_unique<DeviceRegions>(std::move(backend));
}

Result<std::vector<device::ChunkIndex>> DeviceRegions::take(std::uint64_t bytes) {
  const std::uint64_t wanted = (bytes + chunk_bytes() - 1) / chunk_bytes();
  if (wanted > free_.size())
    return error(Code::NO_CAPACITY, "a region of %llu bytes: the device has %llu left",
                 number(bytes), number(free_.size() * chunk_bytes()));
  std::vector<device::ChunkIndex> chunks;
  while (chunks.size() < wanted) chunks.push_back(free_.extract(free_.begin()).value());
  return chunks;
}

void DeviceRegions::give_back(const std::vector<device::ChunkIndex>& chunks) {
  free_.insert(chunks.begin(), chunks.end());
}

Result<std::unique_ptr<client::RegionMemory>> DeviceRegions::make(std::uint64_t bytes) {
  PLEXRL_ASSIGN(auto place, backend_->reserve(bytes));
  return std::unique_ptr<client::RegionMemory>(
      std::make_unique<DeviceRegionMemory>(*this, std::move(place), bytes));
}

}  // namespace plexrl::torch_alloc
