// SPDX-License-Identifier: Apache-2.0
// CpuBackend: the device tier in host memory, a pre-faulted memfd pool that is remapped and never
// released (measured: 9.3 GB/s into remapped memory, 1.7 GB/s into memory that must be refaulted).
// A chunk can be mapped in one reservation of this process at a time. The backend outlives its
// reservations.
//
// Of a small segment, filling one huge page's table entry is a fifteenth of the move in. So where
// the pool is in huge pages all of it is mapped for good besides, small segments are copied through
// that mapping (map_to_copy), and their own is filled when nobody waits.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/address_range.h"
#include "device/chunk_pool.h"
#include "device/device_backend.h"
#include "device/mapped_pool.h"
#include "device/pool_marks.h"
#include "device/stream_copy.h"

namespace plexrl::device {

class CpuReservation;

class CpuBackend : public DeviceBackend {
 public:
  // The pool must have passed check_pool; the marks are its.
  CpuBackend(UniqueFd pool, std::size_t chunk_bytes, std::size_t chunk_count, PoolMarks marks);
  // Begins to map the pool for good; does nothing where that would not pay.
  void begin_whole_mapping();
  // Blocks until all of it is, or the first failure, which it gives. For tests.
  [[nodiscard]] Status await_whole_mapping();

  [[nodiscard]] std::size_t chunk_bytes() const noexcept override { return chunk_bytes_; }
  [[nodiscard]] std::size_t chunk_count() const noexcept override { return used_.size(); }
  [[nodiscard]] Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) override;
  [[nodiscard]] Status map(Reservation& where, std::span<const ChunkIndex> chunks) override;
  [[nodiscard]] Status unmap(Reservation& where) override;
  [[nodiscard]] Status map_to_copy(Reservation& where, std::span<const ChunkIndex> chunks) override;
  [[nodiscard]] Status copy_into(Reservation& where, std::size_t at, const std::byte* host,
                                 std::size_t bytes) override;
  void settle(Reservation& where) override;
  [[nodiscard]] Status copy_in(std::byte* device, const std::byte* host,
                               std::size_t bytes) override;
  [[nodiscard]] Status copy_out(std::byte* host, const std::byte* device,
                                std::size_t bytes) override;
  [[nodiscard]] Status zero(std::byte* device, std::size_t bytes) override;
  // What the pool's marks say to be zero is spared.
  [[nodiscard]] Status zero_tail(Reservation& where) override;
  // Of the pool; chunks mapped by other processes count as free.
  [[nodiscard]] Result<DeviceMemory> memory() override;

 protected:
  enum class Fill : bool { kNow, kLater };
  // One mapping call. Tests override it to fail on demand, so that the rollback is this class's.
  [[nodiscard]] virtual Status map_run(AddressRange& range, const ChunkRun& run, Fill fill);

 private:
  friend class CpuReservation;
  [[nodiscard]] Status claim(std::span<const ChunkIndex> chunks);
  void release(std::span<const ChunkIndex> chunks);
  [[nodiscard]] Status map_all(AddressRange& range, std::span<const ChunkIndex> chunks, Fill fill);
  [[nodiscard]] Status map_with(Reservation& where, std::span<const ChunkIndex> chunks, Fill fill);

  UniqueFd pool_;
  std::size_t chunk_bytes_;
  AddressRange::Pages pages_;
  PoolMarks marks_;
  CopyPath path_ = best_copy_path();
  std::mutex mutex_;
  std::vector<bool> used_;             // guarded by mutex_
  std::unique_ptr<MappedPool> whole_;  // null: segments are copied to where they are mapped
};

}  // namespace plexrl::device
