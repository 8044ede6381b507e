// SPDX-License-Identifier: Apache-2.0
// DeviceRegions: memory of a DeviceBackend as RegionMemory. Between yields a region is chunks of
// the device at a fixed address; a suspend copies them into the region's memfd, which is host
// memory, and gives them back to the device. A large region is made of large chunks, as each costs
// calls of the driver (doc/state.md). What computes on them must have ended. Not thread safe (the
// lease's lock guards it); outlives its regions.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/region.h"
#include "device/device_backend.h"

namespace plexrl::client {

// $PLEXRL_CUDA_LIBRARY, or the driver's usual name.
[[nodiscard]] std::string cuda_library();

class DeviceRegions {
 public:
  // Of one device, by growing size of chunks. Only the driver knows what they take together.
  explicit DeviceRegions(std::vector<std::unique_ptr<device::DeviceBackend>> backends);

  // UNSUPPORTED, NOT_FOUND: no usable driver or device. `library`: of the CUDA driver.
  [[nodiscard]] static Result<std::unique_ptr<DeviceRegions>> open_cuda(const std::string& library,
                                                                        int device);

  // NO_CAPACITY: the address space or the device does not suffice.
  [[nodiscard]] Result<std::unique_ptr<RegionMemory>> make(std::uint64_t bytes);
  // The one that a region of `bytes` is in: at most an eighth of it is rounding, from 16 MiB on.
  [[nodiscard]] device::DeviceBackend& backend_of(std::uint64_t bytes) {
    return *size_of(bytes).backend;
  }

 private:
  friend class DeviceRegionMemory;
  struct ChunkSize {
    std::unique_ptr<device::DeviceBackend> backend;
    std::set<device::ChunkIndex> free;
    [[nodiscard]] Result<std::vector<device::ChunkIndex>> take(std::uint64_t bytes);
    void give_back(const std::vector<device::ChunkIndex>& chunks);
  };
  [[nodiscard]] ChunkSize& size_of(std::uint64_t bytes);

  std::vector<ChunkSize> sizes_;
};

}  // namespace plexrl::client
