// SPDX-License-Identifier: Apache-2.0
// CudaDevice: one device of the driver with its primary context retained, and what its memory is
// like. Any thread.
#pragma once

#include <memory>
#include <string>

#include "device/cuda_driver.h"

namespace plexrl::device {

class CudaDevice {
 public:
  // See CudaBackend::open for the errors. `rdma`: ask for memory that network adapters can reach.
  [[nodiscard]] static Result<std::unique_ptr<CudaDevice>> open(const std::string& library,
                                                                int ordinal, bool rdma);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // Makes the context current on this thread until destroyed. Not entered: status says why, first
  // of all that the device is lost.
  class Entered {
   public:
    explicit Entered(const CudaDevice& device);
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    [[nodiscard]] const Status& status() const noexcept { return status_; }

   private:
    const CudaDevice& device_;
    Status status_;
  };

  [[nodiscard]] const CudaDriver& driver() const noexcept { return *driver_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool rdma() const noexcept { return memory_.flags.gpu_direct_rdma != 0; }
  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
  [[nodiscard]] const cuda::AllocationProperties& memory() const noexcept { return memory_; }
  [[nodiscard]] const cuda::AccessDescription& access() const noexcept { return access_; }

 private:
  explicit CudaDevice(std::unique_ptr<CudaDriver> driver) : driver_(std::move(driver)) {}
  [[nodiscard]] Status find(int ordinal);
  [[nodiscard]] Status probe(bool rdma);
  [[nodiscard]] Status try_create();

  std::unique_ptr<CudaDriver> driver_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
  std::string name_;
  std::size_t granularity_ = 0;
  cuda::AllocationProperties memory_;
  cuda::AccessDescription access_;
};

}  // namespace plexrl::device
