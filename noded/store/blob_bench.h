// SPDX-License-Identifier: Apache-2.0
// Measures the disk tier against the disk: a blob to the disk and back, from and to chunks of a
// pool, and beside it the same bytes by plain O_DIRECT reads and writes at queue depth 16, in the
// same directory. Both are synced, and the file's room is reserved before.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "store/memfd_memory.h"

namespace plexrl::store {

struct BlobBench {
  std::uint64_t bytes = 0;
  Duration write;      // a call of BlobStore::write to its completion
  Duration raw_write;  // to the end of fsync
  Duration read;
  Duration raw_read;
  std::string method;  // BlobStore::method
};

// Two pools of host memory like plexrld's, each with room for the bytes: what is written, and where
// it is read back to. Borrowed.
struct BlobBenchPools {
  int from = -1;
  int to = -1;
  std::size_t chunk_bytes = 0;
  ChunkHooks from_hooks = {}, to_hooks = {};  // as plexrld's
};

// One round; callers take medians over several. The four parts are timed one after the other, the
// raw ones first when `raw_first`. Needs twice `bytes` of disk, leaves nothing behind. `directory`
// must exist.
[[nodiscard]] Result<BlobBench> bench_blob(const std::string& directory,
                                           const BlobBenchPools& pools, std::uint64_t bytes,
                                           bool raw_first);

}  // namespace plexrl::store
