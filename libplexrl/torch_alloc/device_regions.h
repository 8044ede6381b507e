// SPDX-License-Identifier: Apache-2.0
// DeviceRegions: memory of a DeviceBackend as RegionMemory. Between yields a region is chunks of
// the device at a fixed address; a suspend copies them into the region's memfd, which is host
// memory, and gives them back to the device. What computes on them must have ended. Not thread safe
// (the lease's lock guards it); outlives its regions.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/region.h"
#include "device/device_backend.h"

namespace plexrl::torch_alloc {

class DeviceRegions {
 public:
  explicit DeviceRegions(std::unique_ptr<device::DeviceBackend> backend);

  // UNSUPPORTED, NOT_FOUND: no usable driver or device. `library`: of the CUDA driver.
  [[nodiscard]] static Result<std::unique_ptr<DeviceRegions>> open_cuda(const std::string& library,
                                                                        int device);

  // NO_CAPACITY: the address space or the device does not suffice.
  [[nodiscard]] Result<std::unique_ptr<client::RegionMemory>> make(std::uint64_t bytes);
  [[nodiscard]] std::size_t chunk_bytes() const { return backend_->chunk_bytes(); }
  [[nodiscard]] device::DeviceBackend& backend() { return *backend_; }

 private:
  friend class DeviceRegionMemory;
  [[nodiscard]] Result<std::vector<device::ChunkIndex>> take(std::uint64_t bytes);
  void give_back(const std::vector<device::ChunkIndex>& chunks);

  std::unique_ptr<device::DeviceBackend> backend_;
  std::set<device::ChunkIndex> free_;
};

}  // namespace plexrl::torch_alloc
