// SPDX-License-Identifier: Apache-2.0
#include "engine/fake_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "device/chunk_pool.h"
#include "device/pool_marks.h"

namespace plexrl::engine {

Result<FakePool> FakePool::open(UniqueFd fd, std::size_t chunk_bytes, std::size_t chunks) {
  if (chunk_bytes == 0 || chunk_bytes % sizeof(std::uint64_t) != 0)
    return error(Code::INVALID_ARGUMENT, "pool: chunks of %zu bytes are not whole words",
                 chunk_bytes);
  PLEXRL_TRY(device::check_pool(fd.get(), chunk_bytes, chunks));
  PLEXRL_ASSIGN(const auto marks, device::PoolMarks::open(fd.get(), chunk_bytes, chunks));
  void* const data =
      ::mmap(nullptr, chunk_bytes * chunks, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return errno_error(Code::IO, errno, "pool: mmap");
  // It writes wherever it likes.
  for (device::ChunkIndex chunk = 0; chunk < chunks; ++chunk) marks.raise(chunk, chunk_bytes);
  return FakePool(std::move(fd), static_cast<std::byte*>(data), chunk_bytes, chunks);
}

FakePool::~FakePool() {
  if (data_ != nullptr) ::munmap(data_, chunk_bytes_ * chunks_);
}

std::span<std::byte> FakePool::chunk(std::uint32_t index) const {
  PLEXRL_CHECK(index < chunks_, "a chunk of the pool");
  return {data_ + index * chunk_bytes_, chunk_bytes_};
}

Status FakePool::check(const FakeChunks& chunks, std::uint64_t bytes) const {
  PLEXRL_TRY(device::check_chunks(chunks, chunks_));
  const std::uint64_t wanted = bytes / chunk_bytes_ + (bytes % chunk_bytes_ != 0 ? 1 : 0);
  if (chunks.size() == wanted) return {};
  return error(Code::INVALID_ARGUMENT, "%zu chunks for %llu bytes", chunks.size(),
               static_cast<unsigned long long>(bytes));
}

std::uint64_t& FakeWords::at(std::uint64_t index) const {
  PLEXRL_CHECK(index < words_, "a word of the segment");
  const std::size_t byte = index * sizeof(std::uint64_t);
  const auto chunk = pool_.chunk(chunks_[byte / pool_.chunk_bytes()]);
  // Pools are mapped at page boundaries and chunks are whole words, so every word is aligned.
  return *reinterpret_cast<std::uint64_t*>(chunk.data() + byte % pool_.chunk_bytes());
}

void copy_chunks(const FakePool& from, const FakeChunks& source, const FakePool& to,
                 const FakeChunks& target) {
  for (std::size_t i = 0; i < source.size(); ++i)
    std::memcpy(to.chunk(target[i]).data(), from.chunk(source[i]).data(), from.chunk_bytes());
}

std::uint64_t fake_mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t value = a * 0x9E3779B97F4A7C15u + b * 0xBF58476D1CE4E5B9u + c + 1;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

}  // namespace plexrl::engine
