// SPDX-License-Identifier: Apache-2.0
// CudaBackend: chunks of a GPU by the driver's virtual memory management. One address range per
// reservation; each mapped chunk is one physical allocation of chunk_bytes (a multiple of the
// device's granularity, usually 2 MiB; 64 to 256 MiB keep the number of driver calls small). Copies
// run on one stream each way, which do not wait for the streams that compute.
//
// The backend keeps the device's primary context, the one that LibTorch uses too, and makes it
// current only for the length of a call. It outlives its reservations and pins.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/cuda_driver.h"
#include "device/device_backend.h"

namespace plexrl::device {

struct CudaOptions {
  std::string library = "libcuda.so.1";
  int device = 0;  // the driver's number of it
  std::size_t chunk_bytes = 0;
  std::size_t chunk_count = 0;
  // Ask for memory that network adapters can read and write; without it where the device or the
  // system has no such memory (logged).
  bool rdma = true;
  // After an unmap the device's free memory must rise by what was released within this time, or the
  // release counts as unproven (logged). The driver clears memory before it is free. What this
  // process maps meanwhile is allowed for, what other processes do is not.
  Duration prove_free_within{200 * kMillisecond.ns};
  // How long the end of a copy is polled for before the thread sleeps on it: waking up took 0.2 to
  // 0.3 ms on an H200 (2026-11), as long as 16 MiB.
  Duration poll_for{2 * kMillisecond.ns};
};

class CudaDevice;
class CudaReservation;
class CudaPin;

class CudaBackend final : public DeviceBackend {
 public:
  // UNSUPPORTED: no driver, too old a driver, or a device without virtual memory management.
  // NOT_FOUND: no such device. NO_CAPACITY: the device has less memory than chunk_count chunks.
  [[nodiscard]] static Result<std::unique_ptr<CudaBackend>> open(const CudaOptions& options);
  ~CudaBackend() override;

  [[nodiscard]] std::size_t chunk_bytes() const noexcept override { return options_.chunk_bytes; }
  [[nodiscard]] std::size_t chunk_count() const noexcept override { return claimed_.size(); }
  // Within the capacity; the driver refuses nothing else.
  [[nodiscard]] Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) override;
  [[nodiscard]] Status map(Reservation& where, std::span<const ChunkIndex> chunks) override;
  [[nodiscard]] Status unmap(Reservation& where) override;
  [[nodiscard]] Status copy_in(std::byte* device, const std::byte* host,
                               std::size_t bytes) override;
  [[nodiscard]] Status copy_out(std::byte* host, const std::byte* device,
                                std::size_t bytes) override;
  [[nodiscard]] Status zero(std::byte* device, std::size_t bytes) override;
  [[nodiscard]] Result<DeviceMemory> memory() override;
  [[nodiscard]] bool gains_by_pinning() const noexcept override { return true; }
  [[nodiscard]] Result<std::unique_ptr<HostPin>> pin(std::span<std::byte> host) override;

  [[nodiscard]] const std::string& device_name() const noexcept;
  [[nodiscard]] bool rdma() const noexcept { return options_.rdma; }
  // Unmaps whose memory was not seen to come back in time: another process took it, or the driver
  // had not cleared it yet.
  [[nodiscard]] std::uint64_t unproven_releases() const;

 private:
  friend class CudaReservation;
  friend class CudaPin;
  // One direction: a stream that one copy uses at a time, and the event that ends it.
  struct Lane {
    std::mutex mutex;
    cuda::Stream stream = nullptr;
    cuda::Event event = nullptr;
  };

  CudaBackend(CudaOptions options, std::unique_ptr<CudaDevice> device);
  [[nodiscard]] Status open_lane(Lane& lane);
  void close_lane(Lane& lane);
  [[nodiscard]] Status wait_for(const Lane& lane) const;
  template <class Issue>
  [[nodiscard]] Status on_lane(Lane& lane, const std::byte* device, std::size_t bytes,
                               Issue&& issue);
  [[nodiscard]] std::size_t piece_at(const std::byte* host, std::size_t bytes) const;
  [[nodiscard]] Status check_mapped(const std::byte* device, std::size_t bytes) const;

  [[nodiscard]] Status claim(std::span<const ChunkIndex> chunks);
  void unclaim(ChunkIndex chunk);
  [[nodiscard]] Status map_all(CudaReservation& place, std::span<const ChunkIndex> chunks);
  [[nodiscard]] Status map_one(CudaReservation& place, std::size_t at);
  [[nodiscard]] Status give_back(CudaReservation& place);
  struct Release {
    std::uint64_t free_before = 0;
    std::uint64_t created_before = 0;
    std::uint64_t bytes = 0;
  };
  void prove_free(const Release& release);
  [[nodiscard]] std::uint64_t created_bytes() const;
  void release(CudaReservation& place);
  void unpin(std::byte* host);

  CudaOptions options_;
  std::unique_ptr<CudaDevice> device_;
  Lane in_, out_;
  mutable std::mutex mutex_;
  std::vector<bool> claimed_;                       // guarded by mutex_, as all below
  std::map<const std::byte*, std::size_t> mapped_;  // ranges that copies may touch
  std::map<const std::byte*, std::size_t> pinned_;  // host ranges
  std::uint64_t created_bytes_ = 0;                 // all that was ever created
  std::uint64_t unproven_ = 0;
};

// As a DeviceBackend, for callers that need no more.
[[nodiscard]] Result<std::unique_ptr<DeviceBackend>> open_cuda_backend(const CudaOptions& options);

}  // namespace plexrl::device
