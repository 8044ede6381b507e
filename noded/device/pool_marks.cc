// SPDX-License-Identifier: Apache-2.0
#include "device/pool_marks.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/check.h"
#include "device/chunk_pool.h"
#include "device/stream_copy.h"

namespace plexrl::device {

Result<PoolMarks> PoolMarks::open(int pool, std::size_t chunk_bytes, std::size_t chunk_count) {
  PoolMarks marks;
  marks.chunk_bytes_ = chunk_bytes;
  marks.chunk_count_ = chunk_count;
  struct stat info {};
  if (::fstat(pool, &info) != 0) return errno_error(Code::IO, errno, "pool descriptor %d", pool);
  const std::size_t from = chunk_bytes * chunk_count;
  const std::size_t bytes = marks_bytes(chunk_count);
  if (static_cast<std::size_t>(info.st_size) < from + bytes) return marks;
  PLEXRL_ASSIGN(marks.marks_, AddressRange::reserve(bytes));
  PLEXRL_TRY(marks.marks_
                 .map(0, pool, static_cast<off_t>(from), bytes, AddressRange::Access::kReadWrite,
                      AddressRange::Pages::kSmall)
                 .within("marks"));
  return marks;
}

std::uint64_t& PoolMarks::mark(ChunkIndex chunk) const noexcept {
  PLEXRL_CHECK(chunk < chunk_count_, "a chunk of the pool");
  return reinterpret_cast<std::uint64_t*>(marks_.data())[chunk];
}

std::size_t PoolMarks::dirty_bytes(ChunkIndex chunk) const noexcept {
  if (marks_.data() == nullptr) return chunk_bytes_;
  const auto value = std::atomic_ref(mark(chunk)).load(std::memory_order_acquire);
  return static_cast<std::size_t>(std::min<std::uint64_t>(value, chunk_bytes_));
}

// Streaming stores may overtake others; this one they may not, so it is a full barrier.
void PoolMarks::raise(ChunkIndex chunk, std::size_t bytes) const noexcept {
  if (marks_.data() == nullptr || dirty_bytes(chunk) >= bytes) return;
  std::atomic_ref(mark(chunk)).store(bytes, std::memory_order_seq_cst);
}

void PoolMarks::raise(std::span<const ChunkIndex> chunks, std::size_t bytes) const noexcept {
  for (const ChunkIndex chunk : chunks) {
    const std::size_t part = std::min(bytes, chunk_bytes_);
    raise(chunk, part);
    bytes -= part;
  }
}

void PoolMarks::clean(ChunkIndex chunk, std::byte* data, std::size_t bytes) const noexcept {
  const std::size_t dirty = dirty_bytes(chunk);
  if (dirty <= bytes) return;
  stream_zero(data + bytes, dirty - bytes, best_copy_path());
  if (marks_.data() != nullptr)
    std::atomic_ref(mark(chunk)).store(bytes, std::memory_order_release);
}

}  // namespace plexrl::device
