// SPDX-License-Identifier: Apache-2.0
// The BlobStore of tests: blobs in memory, faults on demand. Each call is carried out by a callback
// that it posts, so whoever runs the callbacks decides when. One thread.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "store/blob_store.h"

namespace plexrl::store {

// What outlives a crash. Share it between stores, one after the other.
struct MemoryDisk {
  struct Blob {
    std::vector<std::byte> bytes;
    std::vector<std::uint32_t> sums;  // of each chunk
  };
  std::map<BlobId, Blob> blobs;
  std::uint64_t room_bytes = std::numeric_limits<std::uint64_t>::max();

  enum class Verb : std::uint8_t { kRead, kWrite, kRemove };
  // Asked before each; what it returns is the outcome when it is not ok, and nothing is done.
  std::function<Status(Verb verb, BlobId blob)> fault = [](Verb, BlobId) { return Status(); };
};

[[nodiscard]] std::unique_ptr<BlobStore> make_memory_blob_store(std::shared_ptr<MemoryDisk> disk,
                                                                BlobStore::Post post);

}  // namespace plexrl::store
