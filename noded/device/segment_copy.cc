// SPDX-License-Identifier: Apache-2.0
#include "device/segment_copy.h"

#include <algorithm>

namespace plexrl::device {
namespace {

// copy(host address, place in the segment, bytes) for every run of chunks: only what lies together
// in the pool lies together in memory.
template <class Copy>
Status by_runs(const MappedPool& mapped, std::span<const ChunkIndex> chunks,
               std::size_t chunk_bytes, std::size_t bytes, const Copy& copy) {
  for (std::size_t at = 0; at < chunks.size();) {
    const ChunkRun run = run_at(chunks, at);
    const std::size_t from = at * chunk_bytes;
    const std::size_t end = std::min(bytes, from + run.count * chunk_bytes);
    PLEXRL_TRY(copy(mapped.at(run.first), from, end - from));
    at += run.count;
  }
  return {};
}

bool can_use(const MappedPool* mapped, std::span<const ChunkIndex> chunks) {
  return mapped != nullptr && !chunks.empty() && mapped->holds(chunks);
}

}  // namespace

Status copy_to_host(DeviceBackend& device, const HostPool& host, const Reservation& segment,
                    std::span<const ChunkIndex> chunks, const MappedPool* mapped) {
  const std::size_t bytes = segment.bytes();
  const std::size_t last = (chunks.size() - 1) * host.chunk_bytes();
  if (can_use(mapped, chunks)) {
    host.marks().raise(chunks, bytes);
    PLEXRL_TRY(by_runs(*mapped, chunks, host.chunk_bytes(), bytes,
                       [&](std::byte* to, std::size_t at, std::size_t count) {
                         return device.copy_out(to, segment.data() + at, count);
                       }));
    host.marks().clean(chunks.back(), mapped->at(chunks.back()), bytes - last);
    return {};
  }
  PLEXRL_ASSIGN(auto range, host.map(chunks, AddressRange::Access::kReadWrite, bytes));
  PLEXRL_TRY(device.copy_out(range.data(), segment.data(), bytes));
  host.marks().clean(chunks.back(), range.data() + last, bytes - last);
  return {};
}

Status copy_from_host(DeviceBackend& device, const HostPool& host, Reservation& segment,
                      std::span<const ChunkIndex> chunks, const MappedPool* mapped) {
  if (can_use(mapped, chunks))
    return by_runs(*mapped, chunks, host.chunk_bytes(), segment.bytes(),
                   [&](const std::byte* from, std::size_t at, std::size_t count) {
                     return device.copy_into(segment, at, from, count);
                   });
  PLEXRL_ASSIGN(const auto range, host.map(chunks, AddressRange::Access::kRead));
  return device.copy_into(segment, 0, range.data(), segment.bytes());
}

}  // namespace plexrl::device
