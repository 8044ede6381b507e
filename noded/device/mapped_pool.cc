// SPDX-License-Identifier: Apache-2.0
#include "device/mapped_pool.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/host_pool.h"

namespace plexrl::device {

bool MappedPool::pays(const DeviceBackend& device, const HostPool& pool) noexcept {
  return device.gains_by_pinning() || pool.pages() == AddressRange::Pages::kHuge;
}

Result<std::unique_ptr<MappedPool>> MappedPool::start(DeviceBackend& device, const HostPool& pool,
                                                      std::size_t piece_bytes) {
  return start(device.gains_by_pinning() ? &device : nullptr,
               {"host", pool.fd(), pool.chunk_bytes(), pool.chunk_count(), pool.pages()},
               piece_bytes);
}

Result<std::unique_ptr<MappedPool>> MappedPool::start(DeviceBackend* pins, const Pool& pool,
                                                      std::size_t piece_bytes) {
  PLEXRL_ASSIGN(auto range, AddressRange::reserve(pool.chunk_count * pool.chunk_bytes));
  std::unique_ptr<MappedPool> mapped(new MappedPool(
      pins, pool, std::max(piece_bytes / pool.chunk_bytes, std::size_t{1}), std::move(range)));
  mapped->thread_ = std::thread([at = mapped.get()] { at->run(); });
  return mapped;
}

MappedPool::MappedPool(DeviceBackend* pins, const Pool& pool, std::size_t piece_chunks,
                       AddressRange range)
    : device_(pins), pool_(pool), piece_chunks_(piece_chunks), range_(std::move(range)) {}

MappedPool::~MappedPool() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  pins_.clear();
}

void MappedPool::run() {
  ::pthread_setname_np(::pthread_self(), "px-map");
  while (!stopping_ && ready_chunks_ < pool_.chunk_count) {
    const std::size_t first = ready_chunks_;
    const std::size_t count = std::min(piece_chunks_, pool_.chunk_count - first);
    outcome_ = add_piece(first, count);
    if (!outcome_.ok()) {
      PLEXRL_LOG(kWarning, "%zu of %zu MiB of %s memory are not %s, copies of them are slow: %s",
                 ((pool_.chunk_count - first) * pool_.chunk_bytes) >> 20,
                 (pool_.chunk_count * pool_.chunk_bytes) >> 20, pool_.name,
                 device_ != nullptr ? "registered with the device" : "mapped for good",
                 outcome_.to_string().c_str());
      return;
    }
    ready_chunks_ = first + count;
  }
}

Status MappedPool::add_piece(std::size_t first, std::size_t count) {
  const std::size_t at = first * pool_.chunk_bytes;
  const std::size_t bytes = count * pool_.chunk_bytes;
  PLEXRL_TRY(range_.map(at, pool_.fd, static_cast<off_t>(at), bytes,
                        AddressRange::Access::kReadWrite, pool_.pages));
  if (device_ == nullptr) return {};
  PLEXRL_ASSIGN(auto pin, device_->pin({range_.data() + at, bytes}));
  pins_.push_back(std::move(pin));
  return {};
}

std::byte* MappedPool::at(ChunkIndex chunk) const noexcept {
  return chunk < ready_chunks_ ? range_.data() + chunk * pool_.chunk_bytes : nullptr;
}

bool MappedPool::holds(std::span<const ChunkIndex> chunks) const noexcept {
  return std::all_of(chunks.begin(), chunks.end(),
                     [this](ChunkIndex chunk) { return at(chunk) != nullptr; });
}

std::size_t MappedPool::pinned_bytes() const noexcept {
  return device_ != nullptr ? ready_chunks_ * pool_.chunk_bytes : 0;
}

Status MappedPool::wait() {
  if (thread_.joinable()) thread_.join();
  return outcome_;
}

}  // namespace plexrl::device
