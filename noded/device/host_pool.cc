// SPDX-License-Identifier: Apache-2.0
#include "device/host_pool.h"

#include <utility>

namespace plexrl::device {

Result<HostPool> HostPool::open(UniqueFd pool, std::size_t chunk_bytes, std::size_t chunk_count) {
  PLEXRL_TRY(check_pool(pool.get(), chunk_bytes, chunk_count).within("host pool"));
  const auto pages = AddressRange::pages_of(pool.get(), chunk_bytes * chunk_count);
  PLEXRL_ASSIGN(auto marks, PoolMarks::open(pool.get(), chunk_bytes, chunk_count));
  return HostPool(std::move(pool), chunk_bytes, chunk_count, pages, std::move(marks));
}

Result<AddressRange> HostPool::map(std::span<const ChunkIndex> chunks, AddressRange::Access access,
                                   std::size_t bytes) const {
  PLEXRL_TRY(check_chunks(chunks, chunk_count_).within("host pool"));
  if (access == AddressRange::Access::kReadWrite) marks_.raise(chunks, bytes);
  PLEXRL_ASSIGN(auto range, AddressRange::reserve(chunks.size() * chunk_bytes_));
  for (std::size_t at = 0; at < chunks.size();) {
    const ChunkRun run = run_at(chunks, at);
    const off_t offset = static_cast<off_t>(run.first) * static_cast<off_t>(chunk_bytes_);
    PLEXRL_TRY(
        range.map(at * chunk_bytes_, pool_.get(), offset, run.count * chunk_bytes_, access, pages_)
            .within("host pool"));
    at += run.count;
  }
  return range;
}

}  // namespace plexrl::device
