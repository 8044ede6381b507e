// SPDX-License-Identifier: Apache-2.0
#include "state/chunk_allocator.h"

#include <algorithm>

#include "base/check.h"

namespace plexrl::state {

std::optional<Chunks> ChunkAllocator::allocate(std::uint64_t count) {
  if (count > free_) return std::nullopt;
  Chunks chunks;
  chunks.reserve(count);
  std::uint32_t at = lowest_free_;
  for (; chunks.size() < count; ++at) {
    if (taken_[at]) continue;
    taken_[at] = true;
    chunks.push_back(at);
  }
  lowest_free_ = at;
  free_ -= static_cast<std::uint32_t>(count);
  return chunks;
}

bool ChunkAllocator::take(const Chunks& chunks) {
  std::size_t done = 0;
  while (done < chunks.size() && chunks[done] < taken_.size() && !taken_[chunks[done]])
    taken_[chunks[done++]] = true;
  if (done == chunks.size()) {
    free_ -= static_cast<std::uint32_t>(done);
    return true;
  }
  for (std::size_t i = 0; i < done; ++i) taken_[chunks[i]] = false;
  return false;
}

void ChunkAllocator::give_back(const Chunks& chunks) {
  for (const std::uint32_t chunk : chunks) {
    PLEXRL_CHECK(chunk < taken_.size() && taken_[chunk],
                 "a chunk was given back that is not taken");
    taken_[chunk] = false;
    lowest_free_ = std::min(lowest_free_, chunk);
  }
  free_ += static_cast<std::uint32_t>(chunks.size());
}

}  // namespace plexrl::state
