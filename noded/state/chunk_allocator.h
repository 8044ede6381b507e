// SPDX-License-Identifier: Apache-2.0
// ChunkAllocator: which chunks of a pool are taken. Hands out the lowest free numbers, so that the
// same calls give the same chunks and a segment is mostly one run. A chunk that is given back
// twice, or was never taken, is a broken invariant and aborts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "state/segment.h"

namespace plexrl::state {

class ChunkAllocator {
 public:
  explicit ChunkAllocator(std::uint32_t chunks) : taken_(chunks, false), free_(chunks) {}

  // `count` chunks in ascending order, or none when there are not so many.
  [[nodiscard]] std::optional<Chunks> allocate(std::uint64_t count);
  // Just these; false, and nothing taken, when one is taken, out of range or named twice.
  [[nodiscard]] bool take(const Chunks& chunks);
  void give_back(const Chunks& chunks);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(taken_.size()); }
  [[nodiscard]] std::uint32_t free() const { return free_; }

 private:
  std::vector<bool> taken_;
  std::uint32_t free_;
  std::uint32_t lowest_free_ = 0;  // nothing below it is free
};

}  // namespace plexrl::state
