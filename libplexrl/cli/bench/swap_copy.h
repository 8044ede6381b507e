// SPDX-License-Identifier: Apache-2.0
// SwapCopy: what moving one segment between the device and the host tier costs, measured through
// the engine's own path (device::segment_copy, with the mapping of the device side), beside a raw
// copy of as many bytes between memory of the same pools that stays mapped and faulted in. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/segment_copy.h"

namespace plexrl::cli {

// Medians of `repeats` rounds, in each of which a move and the raw copies take turns.
struct SwapSpeed {
  std::uint64_t bytes = 0;
  std::uint32_t repeats = 0;
  double gbps = 0;  // 10^9 bytes per second
  double raw_gbps = 0;
  double ratio = 0;  // of the speeds within a round
  // The same where the chunks' former users filled them, so that what lies behind the bytes in the
  // last one has to be zeroed.
  double ratio_after_larger = 0;
  // The same as `ratio` with the page tables that a move in leaves to be filled when nobody waits.
  double ratio_filled = 0;
};

class SwapCopy {
 public:
  // Pools that hold segments of up to `bytes`. NO_CAPACITY when the machine has not twice as much.
  [[nodiscard]] static Result<SwapCopy> create(std::uint64_t bytes);

  // A suspend: copy out, unmap.
  [[nodiscard]] Result<SwapSpeed> device_to_host(std::uint64_t bytes);
  // A resume: map, copy in.
  [[nodiscard]] Result<SwapSpeed> host_to_device(std::uint64_t bytes);
  // Seconds of one raw copy, the faster way.
  [[nodiscard]] double raw_copy_s(std::uint64_t bytes);
  // Share of the pools' memory that huge pages hold, 0 to 1.
  [[nodiscard]] double huge_pages() const;

 private:
  struct Pool {
    UniqueFd fd;
    device::AddressRange all;  // mapped as long as this lives: what the raw copy uses
    device::PoolMarks marks;
  };
  using RawCopy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

  SwapCopy() = default;
  [[nodiscard]] static Result<Pool> make_pool(const char* name, std::size_t chunks);
  // What the chunks held before a move.
  enum class Former : bool { kAsLarge, kLarger };
  [[nodiscard]] Result<SwapSpeed> measure(std::uint64_t bytes, bool out);
  [[nodiscard]] Result<SwapSpeed> measure_after(Former former, std::uint64_t bytes, bool out);
  struct Seconds {
    double move = 0;
    double filling = 0;  // after it
  };
  [[nodiscard]] Result<Seconds> move(device::Reservation& segment,
                                     const std::vector<device::ChunkIndex>& chunks, bool out);
  [[nodiscard]] Result<Seconds> move_out(device::Reservation& segment,
                                         const std::vector<device::ChunkIndex>& chunks);
  [[nodiscard]] Result<Seconds> move_in(device::Reservation& segment,
                                        const std::vector<device::ChunkIndex>& chunks);
  void fill_chunks(const std::vector<device::ChunkIndex>& chunks);
  [[nodiscard]] double raw_seconds(RawCopy copy, std::uint64_t bytes, std::size_t slot, bool out);

  std::size_t chunks_ = 0;
  Pool device_pool_;
  Pool host_pool_;
  std::unique_ptr<device::DeviceBackend> device_;
  std::unique_ptr<device::HostPool> host_;      // where mapped_ finds it
  std::unique_ptr<device::MappedPool> mapped_;  // as an engine has it when its pools are ready
};

}  // namespace plexrl::cli
