// SPDX-License-Identifier: Apache-2.0
// DeviceBackend: memory of a device group as equal chunks, mapped at addresses that never change.
//
// A segment reserves address space once (`reserve`) and has memory only while it is mapped.
// Backends: cpu (a pre-faulted memfd chunk pool, remapped with MAP_FIXED), fake (faults on demand),
// cuda later. Threads: any, but calls for one reservation must not overlap. All functions return
// errors, never abort on what the operating system or a driver says.
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

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  [[nodiscard]] virtual std::size_t chunk_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::size_t chunk_count() const noexcept = 0;

  [[nodiscard]] virtual Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) = 0;
  // Maps chunks[i] at data() + i * chunk_bytes(); needs ceil(bytes / chunk_bytes) of them. All or
  // none.
  [[nodiscard]] virtual Status map(Reservation& where, std::span<const ChunkIndex> chunks) = 0;
  // Touching the range afterwards is a fault. The chunks keep their contents until reused.
  [[nodiscard]] virtual Status unmap(Reservation& where) = 0;
  // Host to device and back. `bytes` need not be a multiple of the chunk size. Blocks until done;
  // any thread. Uses stream stores above the cache size.
  [[nodiscard]] virtual Status copy_in(std::byte* device, const std::byte* host,
                                       std::size_t bytes) = 0;
  [[nodiscard]] virtual Status copy_out(std::byte* host, const std::byte* device,
                                        std::size_t bytes) = 0;
  [[nodiscard]] virtual Status zero(std::byte* device, std::size_t bytes) = 0;
};

// The cpu backend over a pool made by create_cpu_pool (in plexrld) and passed to the engine.
// Pool memfds are sealed (SHRINK|GROW|SEAL) and their memory is touched once at creation.
[[nodiscard]] Result<UniqueFd> create_cpu_pool(const char* name, std::size_t chunk_bytes,
                                               std::size_t chunk_count);
[[nodiscard]] Result<std::unique_ptr<DeviceBackend>> open_cpu_backend(UniqueFd pool,
                                                                      std::size_t chunk_bytes,
                                                                      std::size_t chunk_count);

}  // namespace plexrl::device
