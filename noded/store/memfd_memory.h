// SPDX-License-Identifier: Apache-2.0
// MemfdMemory: a blob's memory in chunks of a pool (a sealed memfd), in the order of the list.
// Where the pool is mapped anyway, it is used there. Else maps what is asked for, in whole huge
// pages where chunks are made of them, as long as it is asked for.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "store/blob_store.h"

namespace plexrl::store {

// For who keeps account of what chunks hold.
struct ChunkHooks {
  // The first `bytes` of the chunk are about to be written to.
  std::function<void(std::uint32_t chunk, std::size_t bytes)> before_write;
  // All is written; what lies behind the first `bytes` of the chunk, which is at `data`, is not the
  // blob's.
  std::function<void(std::uint32_t chunk, std::byte* data, std::size_t bytes)> filled;
};

class MemfdMemory final : public BlobMemory {
 public:
  // `pool` is borrowed. chunk_bytes is a multiple of the page size of the pool (huge pages too),
  // and either a multiple of kBlobChunkBytes or, with plain pages, anything.
  // `mapped`: the pool from its first chunk on, for reading and writing; null: it is not mapped.
  MemfdMemory(int pool, std::size_t chunk_bytes, std::vector<std::uint32_t> chunks,
              ChunkHooks hooks = {}, std::shared_ptr<std::byte> mapped = nullptr);

  Result<std::byte*> map(std::uint64_t offset, std::size_t bytes, Access access) override;
  void unmap(std::byte* at, std::size_t bytes) override;
  Status filled(std::uint64_t bytes) override;

 private:
  [[nodiscard]] bool together(std::uint64_t offset, std::size_t bytes) const;
  [[nodiscard]] std::size_t rounded(std::size_t bytes) const;
  void tell(std::uint64_t offset, std::size_t bytes) const;
  [[nodiscard]] Status map_pieces(std::byte* at, std::uint64_t offset, std::size_t bytes,
                                  Access access) const;

  int pool_;
  std::size_t chunk_bytes_;
  std::size_t page_bytes_;
  std::vector<std::uint32_t> chunks_;
  ChunkHooks hooks_;
  std::shared_ptr<std::byte> mapped_;
  std::set<const std::byte*> lent_;  // pieces that are used where the pool is mapped
};

}  // namespace plexrl::store
