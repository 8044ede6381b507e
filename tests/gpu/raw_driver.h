// SPDX-License-Identifier: Apache-2.0
// RawDriver: plain device and pinned memory of the driver, to compare the backend with. Every call
// is in the device's context; a failure is a Status.
#pragma once

#include <memory>
#include <string>

#include "device/cuda_device.h"

namespace plexrl::gpu {

class RawDriver {
 public:
  // `device` must live longer.
  [[nodiscard]] static Result<RawDriver> open(const std::string& library,
                                              const device::CudaDevice& device);

  // Pinned by the driver.
  [[nodiscard]] Result<std::byte*> host_alloc(std::size_t bytes) const;
  void host_free(std::byte* at) const;
  [[nodiscard]] Result<device::cuda::DevicePtr> device_alloc(std::size_t bytes) const;
  void device_free(device::cuda::DevicePtr at) const;

  // One asynchronous copy of all bytes and the wait for it, seconds.
  [[nodiscard]] Result<double> time_in(device::cuda::DevicePtr to, const std::byte* from,
                                       std::size_t bytes) const;
  [[nodiscard]] Result<double> time_out(std::byte* to, device::cuda::DevicePtr from,
                                        std::size_t bytes) const;

 private:
  explicit RawDriver(const device::CudaDevice& device) : device_(&device) {}
  template <class Issue>
  [[nodiscard]] Result<double> timed(Issue&& issue) const;

  const device::CudaDevice* device_;
  device::cuda::Result (*host_alloc_)(void**, std::size_t, unsigned) = nullptr;
  device::cuda::Result (*host_free_)(void*) = nullptr;
  device::cuda::Result (*device_alloc_)(device::cuda::DevicePtr*, std::size_t) = nullptr;
  device::cuda::Result (*device_free_)(device::cuda::DevicePtr) = nullptr;
};

// Now, seconds.
[[nodiscard]] double seconds_now();

}  // namespace plexrl::gpu
