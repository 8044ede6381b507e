// SPDX-License-Identifier: Apache-2.0
// The host pool as the disk tier writes blobs from it and reads them into it.
#pragma once

#include <functional>
#include <memory>

#include "runtime/pools.h"
#include "store/blob_store.h"

namespace plexrl::runtime {

// Makes the memory of a blob in these chunks of the host pool, whose descriptor must stay open.
// Where the pool is in huge pages all of it stays mapped
// (doc/adr/0011-host-pool-mapped-whole.md). NO_CAPACITY: its marks cannot be mapped.
using HostMemory = std::function<std::shared_ptr<store::BlobMemory>(const state::Chunks& chunks)>;
[[nodiscard]] Result<HostMemory> host_memory(const Pools& pools);

}  // namespace plexrl::runtime
