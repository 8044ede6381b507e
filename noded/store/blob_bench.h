// SPDX-License-Identifier: Apache-2.0
// Measures the disk tier against the disk: a blob to the disk and back, from and to chunks of a
// pool, and beside it the same bytes by plain O_DIRECT reads and writes at queue depth 16, in the
// same directory. Both are synced, and the file's room is reserved before.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace plexrl::store {

struct BlobBench {
  std::uint64_t bytes = 0;
  Duration write;      // a call of BlobStore::write to its completion
  Duration raw_write;  // to the end of fsync
  Duration read;
  Duration raw_read;
  std::string method;  // BlobStore::method
};

// One round; callers take medians over several. The four parts are timed one after the other, the
// raw ones first when `raw_first`. Needs `bytes` of memory three times and twice of disk, leaves
// nothing behind. `directory` must exist.
[[nodiscard]] Result<BlobBench> bench_blob(const std::string& directory, std::uint64_t bytes,
                                           bool raw_first);

}  // namespace plexrl::store
