// SPDX-License-Identifier: Apache-2.0
// FakeBackend: a CpuBackend whose calls fail on demand. Counters let a test fail the n-th call of a
// kind from now; the failing call changes nothing.
#pragma once

#include <atomic>
#include <memory>

#include "device/cpu_backend.h"

namespace plexrl::device {

class FakeBackend final : public CpuBackend {
 public:
  // 1 = the next call fails, 2 = the one after it, 0 = none.
  struct Faults {
    std::atomic<int> reserve{0};
    std::atomic<int> map_run{0};
    std::atomic<int> unmap{0};
    std::atomic<int> copy_in{0};
    std::atomic<int> copy_out{0};
    std::atomic<int> zero{0};
  };

  using CpuBackend::CpuBackend;
  [[nodiscard]] static Result<std::unique_ptr<FakeBackend>> create(std::size_t chunk_bytes,
                                                                   std::size_t chunk_count);
  [[nodiscard]] Faults& faults() noexcept { return faults_; }

  [[nodiscard]] Result<std::unique_ptr<Reservation>> reserve(std::size_t bytes) override;
  [[nodiscard]] Status unmap(Reservation& where) override;
  [[nodiscard]] Status copy_in(std::byte* device, const std::byte* host,
                               std::size_t bytes) override;
  [[nodiscard]] Status copy_out(std::byte* host, const std::byte* device,
                                std::size_t bytes) override;
  [[nodiscard]] Status zero(std::byte* device, std::size_t bytes) override;

 protected:
  [[nodiscard]] Status map_run(AddressRange& range, const ChunkRun& run) override;

 private:
  Faults faults_;
};

}  // namespace plexrl::device
