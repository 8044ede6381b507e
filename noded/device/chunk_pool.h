// SPDX-License-Identifier: Apache-2.0
// A chunk pool is a sealed memfd: an array of equal chunks, and behind it their marks (PoolMarks).
// plexrld makes two of them (device tier of the cpu backend, host tier) with create_cpu_pool and
// passes the descriptors to engines.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "device/device_backend.h"

namespace plexrl::device {

// Size and number of chunks that no pool can have: INVALID_ARGUMENT.
[[nodiscard]] Status check_geometry(std::size_t chunk_bytes, std::size_t chunk_count);
// The size of a pool can never change.
inline constexpr int kPoolSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// What the marks of so many chunks take, in whole pages.
[[nodiscard]] std::size_t marks_bytes(std::size_t chunk_count);

// What a receiver of a pool descriptor checks before it maps anything: the size is that of
// chunk_count chunks, with or without marks, and can never change (seals SHRINK and GROW), so no
// access can raise SIGBUS.
[[nodiscard]] Status check_pool(int fd, std::size_t chunk_bytes, std::size_t chunk_count);

// INVALID_ARGUMENT when a chunk is not below chunk_count.
[[nodiscard]] Status check_chunks(std::span<const ChunkIndex> chunks, std::size_t chunk_count);

// Chunks that lie behind each other in the pool and in the list; one mapping call serves them all.
struct ChunkRun {
  std::size_t at = 0;  // index in the list
  ChunkIndex first = 0;
  std::size_t count = 0;
};
// The run that begins at list position `at`, which must be inside the list.
[[nodiscard]] ChunkRun run_at(std::span<const ChunkIndex> chunks, std::size_t at) noexcept;

}  // namespace plexrl::device
