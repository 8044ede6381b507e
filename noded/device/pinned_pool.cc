// SPDX-License-Identifier: Apache-2.0
#include "device/pinned_pool.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/host_pool.h"

namespace plexrl::device {

Result<std::unique_ptr<PinnedPool>> PinnedPool::start(DeviceBackend& device, const HostPool& pool,
                                                      std::size_t piece_bytes) {
  PLEXRL_ASSIGN(auto range, AddressRange::reserve(pool.chunk_count() * pool.chunk_bytes()));
  std::unique_ptr<PinnedPool> pinned(new PinnedPool(
      device, pool, std::max(piece_bytes / pool.chunk_bytes(), std::size_t{1}), std::move(range)));
  pinned->thread_ = std::thread([at = pinned.get()] { at->run(); });
  return pinned;
}

PinnedPool::PinnedPool(DeviceBackend& device, const HostPool& pool, std::size_t piece_chunks,
                       AddressRange range)
    : device_(device),
      pool_(pool),
      chunk_bytes_(pool.chunk_bytes()),
      piece_chunks_(piece_chunks),
      range_(std::move(range)) {}

PinnedPool::~PinnedPool() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
  pins_.clear();
}

void PinnedPool::run() {
  ::pthread_setname_np(::pthread_self(), "px-pin");
  while (!stopping_ && pinned_chunks_ < pool_.chunk_count()) {
    const std::size_t first = pinned_chunks_;
    const std::size_t count = std::min(piece_chunks_, pool_.chunk_count() - first);
    outcome_ = pin_piece(first, count);
    if (!outcome_.ok()) {
      PLEXRL_LOG(kWarning,
                 "%zu of %zu MiB of host memory are not registered with the device, copies of them "
                 "are slow: %s",
                 ((pool_.chunk_count() - first) * chunk_bytes_) >> 20,
                 (pool_.chunk_count() * chunk_bytes_) >> 20, outcome_.to_string().c_str());
      return;
    }
    pinned_chunks_ = first + count;
  }
}

Status PinnedPool::pin_piece(std::size_t first, std::size_t count) {
  const std::size_t at = first * chunk_bytes_;
  const std::size_t bytes = count * chunk_bytes_;
  PLEXRL_TRY(
      range_.map(at, pool_.fd(), static_cast<off_t>(at), bytes, AddressRange::Access::kReadWrite));
  PLEXRL_ASSIGN(auto pin, device_.pin({range_.data() + at, bytes}));
  pins_.push_back(std::move(pin));
  return {};
}

std::byte* PinnedPool::at(ChunkIndex chunk) const noexcept {
  return chunk < pinned_chunks_ ? range_.data() + chunk * chunk_bytes_ : nullptr;
}

bool PinnedPool::holds(std::span<const ChunkIndex> chunks) const noexcept {
  return std::all_of(chunks.begin(), chunks.end(),
                     [this](ChunkIndex chunk) { return at(chunk) != nullptr; });
}

Status PinnedPool::wait() {
  if (thread_.joinable()) thread_.join();
  return outcome_;
}

}  // namespace plexrl::device
