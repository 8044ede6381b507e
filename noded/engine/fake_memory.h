// SPDX-License-Identifier: Apache-2.0
// FakeMemory: the two pools as the fake engine sees them, and segments in them as 64-bit words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::engine {

using FakeChunks = std::vector<std::uint32_t>;

// A whole pool, mapped; unmapped in the destructor.
class FakePool {
 public:
  [[nodiscard]] static Result<FakePool> open(UniqueFd fd, std::size_t chunk_bytes,
                                             std::size_t chunks);
  FakePool(FakePool&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        chunk_bytes_(other.chunk_bytes_),
        chunks_(other.chunks_) {}
  FakePool& operator=(FakePool&&) = delete;
  FakePool(const FakePool&) = delete;
  ~FakePool();

  [[nodiscard]] std::span<std::byte> chunk(std::uint32_t index) const;
  [[nodiscard]] std::size_t chunk_bytes() const { return chunk_bytes_; }
  [[nodiscard]] std::size_t chunks() const { return chunks_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  // INVALID_ARGUMENT unless there are just enough chunks for `bytes`, all of this pool.
  [[nodiscard]] Status check(const FakeChunks& chunks, std::uint64_t bytes) const;

 private:
  FakePool(UniqueFd fd, std::byte* data, std::size_t chunk_bytes, std::size_t chunks)
      : fd_(std::move(fd)), data_(data), chunk_bytes_(chunk_bytes), chunks_(chunks) {}
  UniqueFd fd_;
  std::byte* data_;
  std::size_t chunk_bytes_;
  std::size_t chunks_;
};

// A segment's words in its chunks. `chunks` and the pool must live longer.
class FakeWords {
 public:
  FakeWords(const FakePool& pool, const FakeChunks& chunks, std::uint64_t bytes)
      : pool_(pool), chunks_(chunks), words_(bytes / sizeof(std::uint64_t)) {}
  [[nodiscard]] std::uint64_t size() const { return words_; }
  [[nodiscard]] std::uint64_t& at(std::uint64_t index) const;

 private:
  const FakePool& pool_;
  const FakeChunks& chunks_;
  std::uint64_t words_;
};

// Whole chunks from one pool to another; both lists have the same length.
void copy_chunks(const FakePool& from, const FakeChunks& source, const FakePool& to,
                 const FakeChunks& target);

// A well mixed function of its arguments (the finaliser of SplitMix64), the fake's arithmetic.
[[nodiscard]] std::uint64_t fake_mix(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0);

}  // namespace plexrl::engine
