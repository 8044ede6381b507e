// SPDX-License-Identifier: Apache-2.0
// MemfdMemory: a blob's memory in chunks of a pool (a sealed memfd), in the order of the list. Maps
// what is asked for, in whole huge pages where chunks are made of them, as long as it is asked for.
#pragma once

#include <functional>
#include <vector>

#include "store/blob_store.h"

namespace plexrl::store {

class MemfdMemory final : public BlobMemory {
 public:
  // `pool` is borrowed. chunk_bytes is a multiple of the page size of the pool (huge pages too),
  // and either a multiple of kBlobChunkBytes or, with plain pages, anything.
  // `before_write`: told of every chunk whose first `bytes` are about to be written to.
  using BeforeWrite = std::function<void(std::uint32_t chunk, std::size_t bytes)>;
  MemfdMemory(int pool, std::size_t chunk_bytes, std::vector<std::uint32_t> chunks,
              BeforeWrite before_write = {});

  Result<std::byte*> map(std::uint64_t offset, std::size_t bytes, Access access) override;
  void unmap(std::byte* at, std::size_t bytes) override;

 private:
  [[nodiscard]] std::size_t rounded(std::size_t bytes) const;
  void tell(std::uint64_t offset, std::size_t bytes) const;
  [[nodiscard]] Status map_pieces(std::byte* at, std::uint64_t offset, std::size_t bytes,
                                  Access access) const;

  int pool_;
  std::size_t chunk_bytes_;
  std::size_t page_bytes_;
  std::vector<std::uint32_t> chunks_;
  BeforeWrite before_write_;
};

}  // namespace plexrl::store
