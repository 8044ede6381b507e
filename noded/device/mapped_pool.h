// SPDX-License-Identifier: Apache-2.0
// MappedPool: a whole pool mapped in this process, once, so that moves need not map anything
// (doc/adr/0011-host-pool-mapped-whole.md): the host pool, registered with the device where copies
// gain by it, and the device pool of the cpu backend.
// Filling the page tables and registering take their time, so a thread of its own does it piece by
// piece; until then, and for good where it fails, moves map what they need for themselves and are
// slower.
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

class MappedPool {
 public:
  // About 12 ms of registering on an H200 (2026-11): how long the end of an engine may wait.
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 20;

  struct Pool {
    const char* name = "";  // for the log
    int fd = -1;            // borrowed for the life of the MappedPool
    std::size_t chunk_bytes = 0;
    std::size_t chunk_count = 0;
    AddressRange::Pages pages = AddressRange::Pages::kUnknown;
  };

  // Where it is worth its page tables: with small pages they would be 2 MiB for each GiB of the
  // pool in every engine, which have to be filled and emptied.
  [[nodiscard]] static bool pays(const DeviceBackend& device, const HostPool& pool) noexcept;
  // Begins. Both must live longer. NO_CAPACITY when there is no address space.
  [[nodiscard]] static Result<std::unique_ptr<MappedPool>> start(
      DeviceBackend& device, const HostPool& pool, std::size_t piece_bytes = kPieceBytes);
  // `pins`: what it is registered with; null: nothing is.
  [[nodiscard]] static Result<std::unique_ptr<MappedPool>> start(
      DeviceBackend* pins, const Pool& pool, std::size_t piece_bytes = kPieceBytes);
  // Waits for the piece under way; the registrations end before the mappings.
  ~MappedPool();
  MappedPool(const MappedPool&) = delete;
  MappedPool& operator=(const MappedPool&) = delete;

  // Address of a chunk; nullptr while it is not ready. Any thread.
  [[nodiscard]] std::byte* at(ChunkIndex chunk) const noexcept;
  // All of them are ready. Any thread.
  [[nodiscard]] bool holds(std::span<const ChunkIndex> chunks) const noexcept;
  // Registered with the device; 0 where it does not gain by that.
  [[nodiscard]] std::size_t pinned_bytes() const noexcept;
  // Blocks until all is ready or the first failure, which is also logged, and gives it.
  [[nodiscard]] Status wait();

 private:
  MappedPool(DeviceBackend* pins, const Pool& pool, std::size_t piece_chunks, AddressRange range);
  void run();
  [[nodiscard]] Status add_piece(std::size_t first, std::size_t count);

  DeviceBackend* const device_;  // that it is registered with, or null
  const Pool pool_;
  const std::size_t piece_chunks_;
  AddressRange range_;
  std::vector<std::unique_ptr<HostPin>> pins_;  // the thread's until it ends
  std::atomic<std::size_t> ready_chunks_{0};    // all below are
  std::atomic<bool> stopping_{false};
  Status outcome_;  // the thread's until it ends
  std::thread thread_;
};

}  // namespace plexrl::device
