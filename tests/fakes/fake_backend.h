// SPDX-License-Identifier: Apache-2.0
// FakeBackend: a device over host memory in virtual time, with faults on demand. It is as unhelpful
// as a device may be: memory that was just mapped is full of garbage, copies to what is not mapped
// are refused, and a lost device stays lost. A failing call changes nothing; what was begun is
// rolled back.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "device/address_range.h"
#include "device/device_backend.h"

namespace plexrl::device {

class FakeReservation;

class FakeBackend final : public DeviceBackend {
 public:
  static constexpr std::byte kGarbage{0xa5};
  // 1 = the next call fails, 2 = the one after it, 0 = none. map counts chunks, not calls.
  struct Faults {
    std::atomic<int> reserve{0};
    std::atomic<int> map{0};
    std::atomic<int> unmap{0};
    std::atomic<int> copy_in{0};
    std::atomic<int> copy_out{0};
    std::atomic<int> zero{0};
    std::atomic<int> pin{0};
  };
  // What calls cost in virtual time. Nothing waits.
  struct Costs {
    Duration map_chunk{150'000};
    Duration unmap_chunk{100'000};
    std::uint64_t copy_bytes_per_second = 50'000'000'000;
    std::uint64_t zero_bytes_per_second = 1'000'000'000'000;
  };

  [[nodiscard]] static Result<std::unique_ptr<FakeBackend>> create(std::size_t chunk_bytes,
                                                                   std::size_t chunk_count);
  // Over memory of the caller's, chunk i at i * chunk_bytes, so that a test can look at it.
  FakeBackend(UniqueFd memory, std::size_t chunk_bytes, std::size_t chunk_count)
      : memory_(std::move(memory)), chunk_bytes_(chunk_bytes), used_(chunk_count, false) {}
  ~FakeBackend() override = default;
  // What memory that was just mapped is full of, from now on.
  void set_garbage(std::byte value) noexcept { garbage_ = value; }
  [[nodiscard]] Faults& faults() noexcept { return faults_; }
  [[nodiscard]] Costs& costs() noexcept { return costs_; }
  // Virtual time that all calls took together. Any thread.
  [[nodiscard]] Duration spent() const noexcept { return Duration{spent_ns_}; }
  // Mapped reservations that were settled, each time.
  [[nodiscard]] int settled() const noexcept { return settled_; }
  // The next `copies` copies in are made; those after them stand still until let_in(-1).
  void let_in(int copies) noexcept { let_in_ = copies; }
  // From now on every call says LOST.
  void lose() noexcept { lost_ = true; }
  [[nodiscard]] std::size_t pins() const noexcept { return pins_; }

  [[nodiscard]] std::size_t chunk_bytes() const noexcept override { return chunk_bytes_; }
  [[nodiscard]] std::size_t chunk_count() const noexcept override { return used_.size(); }
  [[nodiscard]] Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) override;
  [[nodiscard]] Status map(Reservation& where, std::span<const ChunkIndex> chunks) override;
  [[nodiscard]] Status unmap(Reservation& where) override;
  [[nodiscard]] Status copy_in(std::byte* device, const std::byte* host,
                               std::size_t bytes) override;
  [[nodiscard]] Status copy_out(std::byte* host, const std::byte* device,
                                std::size_t bytes) override;
  void settle(Reservation& where) override { settled_ += where.mapped() ? 1 : 0; }
  [[nodiscard]] Status zero(std::byte* device, std::size_t bytes) override;
  [[nodiscard]] Result<DeviceMemory> memory() override;
  [[nodiscard]] Result<std::unique_ptr<HostPin>> pin(std::span<std::byte> host) override;

 private:
  friend class FakeReservation;
  friend class FakePin;
  [[nodiscard]] Status strike(std::atomic<int>& countdown, const char* what);
  void spend(std::uint64_t bytes, std::uint64_t bytes_per_second);
  [[nodiscard]] Status claim(std::span<const ChunkIndex> chunks);
  [[nodiscard]] Status map_all(FakeReservation& place, std::span<const ChunkIndex> chunks);
  [[nodiscard]] Status check_mapped(const std::byte* device, std::size_t bytes);
  void release(FakeReservation& place);

  UniqueFd memory_;
  std::size_t chunk_bytes_;
  std::atomic<int> let_in_{-1};  // negative: all
  Faults faults_;
  Costs costs_;
  std::atomic<std::int64_t> spent_ns_{0};
  std::atomic<int> settled_{0};
  std::atomic<std::byte> garbage_{kGarbage};
  std::atomic<bool> lost_{false};
  std::atomic<std::size_t> pins_{0};
  std::mutex mutex_;
  std::vector<bool> used_;                          // guarded by mutex_
  std::map<const std::byte*, std::size_t> mapped_;  // guarded by mutex_
};

}  // namespace plexrl::device
