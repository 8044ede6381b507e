// SPDX-License-Identifier: Apache-2.0
// ActivationArena: the capped memory of everything an op computes on the way: LibTorch's CPU
// allocator and the scratch of our own kernels. One mapping, reserved and touched once, so that no
// op pays for page faults; free lists coalesce; over the cap is an error, never an abort.
// Tenant-neutral: zero_used() wipes what was handed out and is free again. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/result.h"

namespace plexrl::model {

class ActivationArena {
 public:
  struct Stats {
    std::size_t capacity_bytes = 0;
    std::size_t used_bytes = 0;
    std::size_t peak_bytes = 0;  // highest use since the start
    std::uint64_t refused = 0;   // allocations over the cap
  };

  // Maps and touches `bytes`, rounded up to 4 KiB. NO_CAPACITY when the system refuses.
  [[nodiscard]] static Result<std::unique_ptr<ActivationArena>> create(std::size_t bytes);
  ~ActivationArena();
  ActivationArena(const ActivationArena&) = delete;
  ActivationArena& operator=(const ActivationArena&) = delete;

  // 64-byte aligned; nullptr when there is no room. bytes 0 gives nullptr too.
  [[nodiscard]] void* allocate(std::size_t bytes) noexcept;
  void release(void* block) noexcept;  // nullptr is fine

  // Zeroes every byte that was handed out since the last call and is free now. For the engine
  // between two tenants.
  void zero_used() noexcept;
  [[nodiscard]] Stats stats() const noexcept;

  // The arena that the process's kernels and LibTorch use; nullptr before install.
  [[nodiscard]] static ActivationArena* installed() noexcept;

 private:
  ActivationArena(std::byte* memory, std::size_t bytes);
  friend Status install_activation_arena(std::unique_ptr<ActivationArena> arena, int threads);
  static void set_installed(std::unique_ptr<ActivationArena> arena) noexcept;

  std::byte* const memory_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes; neighbours are merged
  std::map<std::size_t, std::size_t> used_;  // offset -> bytes
  std::map<std::size_t, std::size_t>
      dirty_;  // offset -> bytes handed out since the last wipe, merged
  std::size_t used_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::uint64_t refused_ = 0;
};

// Makes `arena` the CPU allocator of LibTorch and of our kernels for the rest of the process. Once,
// before the first tensor is made; the arena is never destroyed afterwards. Also fixes LibTorch's,
// OpenMP's and BLAS's thread count.
[[nodiscard]] Status install_activation_arena(std::unique_ptr<ActivationArena> arena, int threads);

}  // namespace plexrl::model
