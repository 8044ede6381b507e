// SPDX-License-Identifier: Apache-2.0
#include "device/chunk_pool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>

namespace plexrl::device {

Status check_geometry(std::size_t chunk_bytes, std::size_t chunk_count) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (chunk_bytes == 0 || chunk_bytes % page != 0)
    return error(Code::INVALID_ARGUMENT, "chunk size %zu: must be a multiple of the page size %zu",
                 chunk_bytes, page);
  constexpr auto kMaxBytes = static_cast<std::size_t>(std::numeric_limits<off_t>::max());
  if (chunk_count == 0 || chunk_count > std::numeric_limits<ChunkIndex>::max() ||
      chunk_count > (kMaxBytes - marks_bytes(chunk_count)) / chunk_bytes)
    return error(Code::INVALID_ARGUMENT, "a pool of %zu chunks of %zu bytes is not possible",
                 chunk_count, chunk_bytes);
  return {};
}

std::size_t marks_bytes(std::size_t chunk_count) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (chunk_count * sizeof(std::uint64_t) + page - 1) / page * page;
}

Status check_pool(int fd, std::size_t chunk_bytes, std::size_t chunk_count) {
  PLEXRL_TRY(check_geometry(chunk_bytes, chunk_count));
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error(Code::IO, errno, "pool descriptor %d", fd);
  const auto size = static_cast<std::size_t>(info.st_size);
  const std::size_t bytes = chunk_bytes * chunk_count;
  if (size != bytes && size != bytes + marks_bytes(chunk_count))
    return error(Code::INVALID_ARGUMENT, "pool has %lld bytes, %zu chunks of %zu were announced",
                 static_cast<long long>(info.st_size), chunk_count, chunk_bytes);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kPoolSeals) != kPoolSeals)
    return error(Code::INVALID_ARGUMENT, "pool is not a memfd with fixed size (seals %d)", seals);
  return {};
}

Status check_chunks(std::span<const ChunkIndex> chunks, std::size_t chunk_count) {
  for (const ChunkIndex chunk : chunks)
    if (chunk >= chunk_count)
      return error(Code::INVALID_ARGUMENT, "chunk %u: the pool has only %zu", chunk, chunk_count);
  return {};
}

ChunkRun run_at(std::span<const ChunkIndex> chunks, std::size_t at) noexcept {
  std::size_t count = 1;
  while (at + count < chunks.size() && chunks[at + count] == chunks[at] + count) ++count;
  return {at, chunks[at], count};
}

}  // namespace plexrl::device
