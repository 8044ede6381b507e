// SPDX-License-Identifier: Apache-2.0
// HostPool: the engine's view of plexrld's host tier. MappedPool has all of it mapped where that
// pays; what it does not hold is mapped here, for the time of a move only. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "device/address_range.h"
#include "device/chunk_pool.h"
#include "device/pool_marks.h"

namespace plexrl::device {

class HostPool {
 public:
  [[nodiscard]] static Result<HostPool> open(UniqueFd pool, std::size_t chunk_bytes,
                                             std::size_t chunk_count);

  // chunks[i] at data() + i * chunk_bytes(); unmapped when the range is destroyed. To be written
  // to: the first `bytes` at most (default: all), and then marks().clean() the rest.
  [[nodiscard]] Result<AddressRange> map(std::span<const ChunkIndex> chunks,
                                         AddressRange::Access access,
                                         std::size_t bytes = ~std::size_t{0}) const;
  [[nodiscard]] const PoolMarks& marks() const noexcept { return marks_; }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  [[nodiscard]] std::size_t chunk_count() const noexcept { return chunk_count_; }
  [[nodiscard]] AddressRange::Pages pages() const noexcept { return pages_; }
  [[nodiscard]] int fd() const noexcept { return pool_.get(); }  // borrowed

 private:
  HostPool(UniqueFd pool, std::size_t chunk_bytes, std::size_t chunk_count,
           AddressRange::Pages pages, PoolMarks marks) noexcept
      : pool_(std::move(pool)),
        chunk_bytes_(chunk_bytes),
        chunk_count_(chunk_count),
        pages_(pages),
        marks_(std::move(marks)) {}

  UniqueFd pool_;
  std::size_t chunk_bytes_;
  std::size_t chunk_count_;
  AddressRange::Pages pages_;
  PoolMarks marks_;
};

}  // namespace plexrl::device
