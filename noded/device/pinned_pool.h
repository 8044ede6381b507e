// SPDX-License-Identifier: Apache-2.0
// PinnedPool: the whole host pool mapped in this process and registered with the device, once, so
// that copies run at the speed of the link and moves need not map anything. Registering takes about
// as long as reading the pool, so a thread of its own does it piece by piece; until then, and for
// good where it fails, moves map what they need for themselves and are slower.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "device/address_range.h"
#include "device/chunk_pool.h"
#include "device/device_backend.h"

namespace plexrl::device {

class HostPool;

class PinnedPool {
 public:
  // About 12 ms of registering on an H200 (2026-11): how long the end of an engine may wait.
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 20;

  // Begins. Both must live longer. NO_CAPACITY when there is no address space.
  [[nodiscard]] static Result<std::unique_ptr<PinnedPool>> start(
      DeviceBackend& device, const HostPool& pool, std::size_t piece_bytes = kPieceBytes);
  // Waits for the piece under way; the registrations end before the mappings.
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Address of a chunk; nullptr while it is not registered. Any thread.
  [[nodiscard]] std::byte* at(ChunkIndex chunk) const noexcept;
  // All of them are registered. Any thread.
  [[nodiscard]] bool holds(std::span<const ChunkIndex> chunks) const noexcept;
  [[nodiscard]] std::size_t pinned_bytes() const noexcept { return pinned_chunks_ * chunk_bytes_; }
  // Blocks until all is registered or the first failure, which is also logged, and gives it.
  [[nodiscard]] Status wait();

 private:
  PinnedPool(DeviceBackend& device, const HostPool& pool, std::size_t piece_chunks,
             AddressRange range);
  void run();
  [[nodiscard]] Status pin_piece(std::size_t first, std::size_t count);

  DeviceBackend& device_;
  const HostPool& pool_;
  const std::size_t chunk_bytes_;
  const std::size_t piece_chunks_;
  AddressRange range_;
  std::vector<std::unique_ptr<HostPin>> pins_;  // the thread's until it ends
  std::atomic<std::size_t> pinned_chunks_{0};   // all below are registered
  std::atomic<bool> stopping_{false};
  Status outcome_;  // the thread's until it ends
  std::thread thread_;
};

}  // namespace plexrl::device
