// SPDX-License-Identifier: Apache-2.0
// DeviceBackend: memory of a device group as equal chunks, mapped at addresses that never change.
//
// A segment reserves address space once (`reserve`) and has memory only while it is mapped. Chunk
// numbers are handed out by plexrld and are a claim on the device's capacity; what stands behind
// one is the backend's affair:
//   cpu   chunk i is part i of a pre-faulted memfd, shared by all engines, remapped with MAP_FIXED
//   cuda  physical memory is created when chunk i is mapped and released when it is unmapped; it
//         belongs to this process, so engines share capacity, never memory
//   fake  (tests/fakes) host memory in virtual time, with faults on demand
// So what a chunk holds when it is mapped is undefined: the caller fills or zeroes all of it.
// Threads: any, but calls for one reservation must not overlap. All functions return errors, never
// abort on what the operating system or a driver says. LOST: the device cannot be used by this
// process any more; every later call says so too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::device {

using ChunkIndex = std::uint32_t;

// Address space of one segment. Destroying it unmaps and returns the address space.
class Reservation {
 public:
  virtual ~Reservation() = default;
  [[nodiscard]] virtual std::byte* data() const noexcept = 0;  // constant for its life
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  [[nodiscard]] virtual bool mapped() const noexcept = 0;
};

struct DeviceMemory {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

// Destroying it ends the registration.
class HostPin {
 public:
  virtual ~HostPin() = default;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  [[nodiscard]] virtual std::size_t chunk_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::size_t chunk_count() const noexcept = 0;

  [[nodiscard]] virtual Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) = 0;
  // Maps chunks[i] at data() + i * chunk_bytes(); needs ceil(bytes / chunk_bytes) of them. All or
  // none.
  [[nodiscard]] virtual Status map(Reservation& where, std::span<const ChunkIndex> chunks) = 0;
  // Waits for work on the device first. Touching the range afterwards is a fault, and the memory is
  // free for others. After an error the range may be mapped in part: unmap again or destroy it.
  [[nodiscard]] virtual Status unmap(Reservation& where) = 0;
  // Host to device and back, within one mapped reservation (cuda refuses others with
  // INVALID_ARGUMENT, cpu faults). `bytes` need not be a multiple of the chunk size. Blocks until
  // done; any thread. What computes on the range must have been waited for.
  [[nodiscard]] virtual Status copy_in(std::byte* device, const std::byte* host,
                                       std::size_t bytes) = 0;
  [[nodiscard]] virtual Status copy_out(std::byte* host, const std::byte* device,
                                        std::size_t bytes) = 0;
  // Device memory only.
  [[nodiscard]] virtual Status zero(std::byte* device, std::size_t bytes) = 0;
  // Of a mapped reservation what lies behind its bytes in the last chunk, so that nothing of the
  // chunk's former owner stays there.
  [[nodiscard]] virtual Status zero_tail(Reservation& where) {
    const std::size_t rest = where.bytes() % chunk_bytes();
    return zero(where.data() + where.bytes(), rest == 0 ? 0 : chunk_bytes() - rest);
  }

  // A move in, in three steps. map_to_copy is map() for what copy_into and zero_tail fill next: by
  // then the memory may be used at its address too, but where it is faster its page tables are
  // filled by settle, which is for when nobody waits, or else by the first use.
  [[nodiscard]] virtual Status map_to_copy(Reservation& where, std::span<const ChunkIndex> chunks) {
    return map(where, chunks);
  }
  // copy_in to the reservation's bytes from `at` on.
  [[nodiscard]] virtual Status copy_into(Reservation& where, std::size_t at, const std::byte* host,
                                         std::size_t bytes) {
    return copy_in(where.data() + at, host, bytes);
  }
  // Nothing for one that is not mapped.
  virtual void settle(Reservation& /*where*/) {}

  // As the device sees it: on cuda all processes that use it count.
  [[nodiscard]] virtual Result<DeviceMemory> memory() = 0;
  // Whether copies are faster from memory that was registered.
  [[nodiscard]] virtual bool gains_by_pinning() const noexcept { return false; }
  // Registers host memory with the device, so that copies run at the speed of the link. Register
  // large ranges once, not per copy: it costs as much as a copy or more. The memory must stay
  // mapped while the pin lives, and the pin must not outlive the backend. Copies from other memory
  // work too, slower. cpu: nothing to do.
  [[nodiscard]] virtual Result<std::unique_ptr<HostPin>> pin(std::span<std::byte> /*host*/) {
    return std::make_unique<HostPin>();
  }
};

// The cpu backend over a pool made by create_cpu_pool (in plexrld) and passed to the engine.
// Pool memfds are sealed (SHRINK|GROW|SEAL) and their memory is touched once at creation.
[[nodiscard]] Result<UniqueFd> create_cpu_pool(const char* name, std::size_t chunk_bytes,
                                               std::size_t chunk_count);
[[nodiscard]] Result<std::unique_ptr<DeviceBackend>> open_cpu_backend(UniqueFd pool,
                                                                      std::size_t chunk_bytes,
                                                                      std::size_t chunk_count);

}  // namespace plexrl::device
