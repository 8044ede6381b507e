// SPDX-License-Identifier: Apache-2.0
// PoolMarks: up to where each chunk of a pool may hold something of its former users; all behind it
// is zero. So the rest of a segment's last chunk need not be zeroed in every move. The marks lie
// behind the chunks in the pool's memfd: everybody who writes to chunks shares them.
//
// A mark is raised before the chunk is written to and lowered after the rest was zeroed, so whoever
// dies in between leaves one that is too high, which costs time only. A chunk has one owner at a
// time (doc/state.md), who alone changes its mark. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "device/address_range.h"
#include "device/device_backend.h"

namespace plexrl::device {

class PoolMarks {
 public:
  // Without any: every chunk may be full.
  PoolMarks() noexcept = default;
  // Of a pool that passed check_pool; none when it was made without. After an error (NO_CAPACITY)
  // the pool may not be written to: others would believe marks that nobody raises.
  [[nodiscard]] static Result<PoolMarks> open(int pool, std::size_t chunk_bytes,
                                              std::size_t chunk_count);

  // What it says is not trusted: never more than a chunk.
  [[nodiscard]] std::size_t dirty_bytes(ChunkIndex chunk) const noexcept;
  // The first `bytes` of it are about to be written to.
  void raise(ChunkIndex chunk, std::size_t bytes) const noexcept;
  // The same of a segment of `bytes` in these chunks, each but the last one full.
  void raise(std::span<const ChunkIndex> chunks, std::size_t bytes) const noexcept;
  // Zeroes what may not be zero of the chunk, which is mapped at `data`, behind its first `bytes`.
  void clean(ChunkIndex chunk, std::byte* data, std::size_t bytes) const noexcept;

 private:
  [[nodiscard]] std::uint64_t& mark(ChunkIndex chunk) const noexcept;

  AddressRange marks_;
  std::size_t chunk_bytes_ = 0;
  std::size_t chunk_count_ = 0;
};

}  // namespace plexrl::device
