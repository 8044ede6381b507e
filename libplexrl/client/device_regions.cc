// SPDX-License-Identifier: Apache-2.0
#include "client/device_regions.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/log.h"
#include "device/cuda_backend.h"

namespace plexrl::client {
namespace {

// The first is the usual granularity of device memory: regions of a few MiB must not take a large
// chunk each.
constexpr std::array<std::size_t, 3> kChunkBytes = {2U << 20, 16U << 20, 128U << 20};
constexpr std::uint64_t kLeastChunks = 8;

unsigned long long number(std::uint64_t value) { return value; }

// The region's memfd in this process, from its first suspend on: mapping and pinning again for each
// copy would cost more than the copies.
class HostView {
 public:
  static Result<std::unique_ptr<HostView>> open(device::DeviceBackend& backend, int fd,
                                                std::uint64_t bytes) {
    void* const data =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (data == MAP_FAILED)
      return errno_error(Code::NO_CAPACITY, errno, "map %llu bytes of host memory", number(bytes));
    std::unique_ptr<HostView> view(new HostView(static_cast<std::byte*>(data), bytes));
    auto pin = backend.pin({view->data_, bytes});
    if (pin)
      view->pin_ = *std::move(pin);
    else
      PLEXRL_LOG(kWarning,
                 "a region of %llu bytes is copied slowly, its host memory is not pinned: %s",
                 number(bytes), pin.error().text().c_str());
    return view;
  }
  ~HostView() {
    pin_.reset();
    (void)::munmap(data_, bytes_);
  }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  HostView(std::byte* data, std::uint64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_;
  std::uint64_t bytes_;
  std::unique_ptr<device::HostPin> pin_;
};

}  // namespace

class DeviceRegionMemory final : public RegionMemory {
 public:
  DeviceRegionMemory(DeviceRegions::ChunkSize& size, std::unique_ptr<device::Reservation> place,
                     std::uint64_t bytes)
      : size_(size), place_(std::move(place)), bytes_(bytes) {}
  DeviceRegionMemory(const DeviceRegionMemory&) = delete;
  DeviceRegionMemory& operator=(const DeviceRegionMemory&) = delete;
  ~DeviceRegionMemory() override {
    place_.reset();  // unmaps
    size_.give_back(chunks_);
  }

  [[nodiscard]] void* address() const override { return place_->data(); }
  [[nodiscard]] Status resume(int fd) override;
  [[nodiscard]] Status suspend(int fd) override;

 private:
  Status let_go();

  DeviceRegions::ChunkSize& size_;
  std::unique_ptr<device::Reservation> place_;
  std::uint64_t bytes_;
  std::vector<device::ChunkIndex> chunks_;  // while it is resumed
  std::unique_ptr<HostView> host_;          // once the memfd holds something
};

Status DeviceRegionMemory::let_go() {
  const Status status = size_.backend->unmap(*place_);
  if (!status.ok()) return status;
  size_.give_back(std::exchange(chunks_, {}));
  return {};
}

Status DeviceRegionMemory::resume(int /*fd*/) {
  if (!chunks_.empty()) return {};
  device::DeviceBackend& backend = *size_.backend;
  PLEXRL_ASSIGN(chunks_, size_.take(bytes_));
  Status status = backend.map(*place_, chunks_);
  if (!status.ok()) {
    size_.give_back(std::exchange(chunks_, {}));
    return status;
  }
  status = host_ != nullptr ? backend.copy_in(place_->data(), host_->data(), bytes_)
                            : backend.zero(place_->data(), bytes_);
  if (!status.ok()) (void)let_go();
  return status;
}

Status DeviceRegionMemory::suspend(int fd) {
  if (chunks_.empty()) return {};
  std::unique_ptr<HostView> opened;  // the region's only when it holds the contents
  if (host_ == nullptr) {
    PLEXRL_ASSIGN(opened, HostView::open(*size_.backend, fd, bytes_));
  }
  const HostView& host = host_ == nullptr ? *opened : *host_;
  PLEXRL_TRY(size_.backend->copy_out(host.data(), place_->data(), bytes_));
  if (host_ == nullptr) host_ = std::move(opened);
  return let_go();
}

std::string cuda_library() {
  const char* const other = std::getenv("PLEXRL_CUDA_LIBRARY");
  return other == nullptr ? "libcuda.so.1" : other;
}

DeviceRegions::DeviceRegions(std::vector<std::unique_ptr<device::DeviceBackend>> backends) {
  for (auto& backend : backends) {
    ChunkSize& size = sizes_.emplace_back();
    for (std::size_t chunk = 0; chunk < backend->chunk_count(); ++chunk)
      size.free.insert(static_cast<device::ChunkIndex>(chunk));
    size.backend = std::move(backend);
  }
}

Result<std::unique_ptr<DeviceRegions>> DeviceRegions::open_cuda(const std::string& library,
                                                                int device) {
  device::CudaOptions options;
  options.library = library;
  options.device = device;
  options.chunk_bytes = kChunkBytes.front();
  options.chunk_count = 1;
  // Chunks are a claim on the device's size, which has to be asked for first.
  PLEXRL_ASSIGN(const auto small, device::open_cuda_backend(options));
  PLEXRL_ASSIGN(const device::DeviceMemory memory, small->memory());
  std::vector<std::unique_ptr<device::DeviceBackend>> backends;
  for (const std::size_t chunk_bytes : kChunkBytes) {
    options.chunk_bytes = chunk_bytes;
    options.chunk_count = memory.total_bytes / chunk_bytes;
    if (options.chunk_count < kLeastChunks) break;
    PLEXRL_ASSIGN(backends.emplace_back(), device::open_cuda_backend(options));
  }
  return std::make_unique<DeviceRegions>(std::move(backends));
}

DeviceRegions::ChunkSize& DeviceRegions::size_of(std::uint64_t bytes) {
  std::size_t chosen = 0;
  while (chosen + 1 < sizes_.size() &&
         bytes / sizes_[chosen + 1].backend->chunk_bytes() >= kLeastChunks)
    ++chosen;
  return sizes_[chosen];
}

Result<std::vector<device::ChunkIndex>> DeviceRegions::ChunkSize::take(std::uint64_t bytes) {
  const std::uint64_t chunk_bytes = backend->chunk_bytes();
  const std::uint64_t wanted = (bytes + chunk_bytes - 1) / chunk_bytes;
  if (wanted > free.size())
    return error(Code::NO_CAPACITY, "a region of %llu bytes: the device has %llu left",
                 number(bytes), number(free.size() * chunk_bytes));
  std::vector<device::ChunkIndex> chunks;
  while (chunks.size() < wanted) chunks.push_back(free.extract(free.begin()).value());
  return chunks;
}

void DeviceRegions::ChunkSize::give_back(const std::vector<device::ChunkIndex>& chunks) {
  free.insert(chunks.begin(), chunks.end());
}

Result<std::unique_ptr<RegionMemory>> DeviceRegions::make(std::uint64_t bytes) {
  ChunkSize& size = size_of(bytes);
  PLEXRL_ASSIGN(auto place, size.backend->reserve(bytes));
  return std::unique_ptr<RegionMemory>(
      std::make_unique<DeviceRegionMemory>(size, std::move(place), bytes));
}

}  // namespace plexrl::client
