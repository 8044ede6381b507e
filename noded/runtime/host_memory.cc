// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_memory.h"

#include <utility>

#include "base/log.h"
#include "device/pool_marks.h"
#include "store/memfd_memory.h"

namespace plexrl::runtime {
namespace {

using device::AddressRange;

// Pages are filled in when they are used first: the loop must not wait for all of them. Without it
// everything works, slower.
std::shared_ptr<std::byte> mapped_whole(int pool, std::size_t bytes) {
  if (AddressRange::pages_of(pool, bytes) != AddressRange::Pages::kHuge) return nullptr;
  auto range = AddressRange::reserve(bytes);
  Status status = range.status();
  if (status.ok()) status = range->map_lazily(0, pool, 0, bytes, AddressRange::Access::kReadWrite);
  if (!status.ok()) {
    PLEXRL_LOG(kWarning, "the disk tier maps host memory for every transfer, which is slower: %s",
               status.to_string().c_str());
    return nullptr;
  }
  const auto owner = std::make_shared<AddressRange>(*std::move(range));
  return {owner, owner->data()};
}

}  // namespace

Result<HostMemory> host_memory(const Pools& pools) {
  const int pool = pools.host.get();
  const state::PoolSizes& sizes = pools.sizes;
  PLEXRL_ASSIGN(auto opened, device::PoolMarks::open(pool, sizes.chunk_bytes, sizes.host_chunks));
  const auto marks = std::make_shared<device::PoolMarks>(std::move(opened));
  const auto mapped = mapped_whole(pool, sizes.chunk_bytes * sizes.host_chunks);
  const store::ChunkHooks hooks{
      [marks](std::uint32_t chunk, std::size_t bytes) { marks->raise(chunk, bytes); },
      [marks](std::uint32_t chunk, std::byte* data, std::size_t bytes) {
        marks->clean(chunk, data, bytes);
      }};
  return HostMemory([pool, hooks, mapped, bytes = sizes.chunk_bytes](const state::Chunks& chunks) {
    return std::make_shared<store::MemfdMemory>(pool, bytes, chunks, hooks, mapped);
  });
}

}  // namespace plexrl::runtime
