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
  PLEXRL_ASSIGN(auto range, AddressRange::reserve(pool.chunk_count() * pool.chunk_bytes()));
  std::unique_ptr<MappedPool> mapped(new MappedPool(
      device, pool, std::max(piece_bytes / pool.chunk_bytes(), std::size_t{1}), std::move(range)));
  mapped->thread_ = std::thread([at = mapped.get()] { at->run(); });
  return mapped;
}

MappedPool::MappedPool(DeviceBackend& device, const HostPool& pool, std::size_t piece_chunks,
                       AddressRange range)
    : device_(device),
      pool_(pool),
      chunk_bytes_(pool.chunk_bytes()),
      piece_chunks_(piece_chunks),
      pins_wanted_(device.gains_by_pinning()),
      range_(std::move(range)) {}

MappedPool::~MappedPool() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  pins_.clear();
}

void MappedPool::run() {
  ::pthread_setname_np(::pthread_self(), "px-map");
  while (!stopping_ && ready_chunks_ < pool_.chunk_count()) {
    const std::size_t first = ready_chunks_;
    const std::size_t count = std::min(piece_chunks_, pool_.chunk_count() - first);
    outcome_ = add_piece(first, count);
    if (!outcome_.ok()) {
      PLEXRL_LOG(kWarning, "%zu of %zu MiB of host memory are not %s, copies of them are slow: %s",
                 ((pool_.chunk_count() - first) * chunk_bytes_) >> 20,
                 (pool_.chunk_count() * chunk_bytes_) >> 20,
                 pins_wanted_ ? "registered with the device" : "mapped for good",
                 outcome_.to_string().c_str());
      return;
    }
    ready_chunks_ = first + count;
  }
}

Status MappedPool::add_piece(std::size_t first, std::size_t count) {
  const std::size_t at = first * chunk_bytes_;
  const std::size_t bytes = count * chunk_bytes_;
  PLEXRL_TRY(range_.map(at, pool_.fd(), static_cast<off_t>(at), bytes,
                        AddressRange::Access::kReadWrite, pool_.pages()));
  if (!pins_wanted_) return {};
  PLEXRL_ASSIGN(auto pin, device_.pin({range_.data() + at, bytes}));
  pins_.push_back(std::move(pin));
  return {};
}

std::byte* MappedPool::at(ChunkIndex chunk) const noexcept {
  return chunk < ready_chunks_ ? range_.data() + chunk * chunk_bytes_ : nullptr;
}

bool MappedPool::holds(std::span<const ChunkIndex> chunks) const noexcept {
  return std::all_of(chunks.begin(), chunks.end(),
                     [this](ChunkIndex chunk) { return at(chunk) != nullptr; });
}

std::size_t MappedPool::pinned_bytes() const noexcept {
  return pins_wanted_ ? ready_chunks_ * chunk_bytes_ : 0;
}

Status MappedPool::wait() {
  if (thread_.joinable()) thread_.join();
  return outcome_;
}

}  // namespace plexrl::device
