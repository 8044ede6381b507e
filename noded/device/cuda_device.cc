// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_device.h"

#include <array>
#include <utility>

#include "base/log.h"

namespace plexrl::device {

CudaDevice::Entered::Entered(const CudaDevice& device)
    : device_(device), status_(device.driver().lost()) {
  if (status_.ok()) status_ = PLEXRL_CUDA(device.driver(), context_push, device.context_);
}

CudaDevice::Entered::~Entered() {
  cuda::Context ignored = nullptr;
  if (status_.ok()) device_.driver().call().context_pop(&ignored);
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(const std::string& library, int ordinal,
                                                     bool rdma) {
  PLEXRL_ASSIGN(auto driver, CudaDriver::open(library));
  PLEXRL_TRY(PLEXRL_CUDA(*driver, init, 0).within("start the CUDA driver"));
  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(driver)));
  PLEXRL_TRY(device->find(ordinal));
  PLEXRL_TRY(device->probe(rdma).within(device->name_));
  return device;
}

CudaDevice::~CudaDevice() {
  if (context_ != nullptr && driver_->lost().ok()) driver_->call().context_release(device_);
}

Status CudaDevice::find(int ordinal) {
  int count = 0;
  PLEXRL_TRY(PLEXRL_CUDA(*driver_, device_count, &count));
  if (ordinal < 0 || ordinal >= count)
    return error(Code::NOT_FOUND, "device cuda:%d: the driver shows %d device(s)", ordinal, count);
  PLEXRL_TRY(PLEXRL_CUDA(*driver_, device_get, &device_, ordinal));
  std::array<char, 128> name{};
  PLEXRL_TRY(
      PLEXRL_CUDA(*driver_, device_name, name.data(), static_cast<int>(name.size()) - 1, device_));
  name_ = name.data();
  int supported = 0;
  PLEXRL_TRY(
      PLEXRL_CUDA(*driver_, device_attribute, &supported, cuda::kAttributeVirtualMemory, device_));
  if (supported == 0)
    return error(Code::UNSUPPORTED, "%s has no virtual memory management", name_.c_str());
  return PLEXRL_CUDA(*driver_, context_retain, &context_, device_);
}

// Whether memory for network adapters can be had shows only when some is created: the attribute is
// the device's, but the system decides too.
Status CudaDevice::probe(bool rdma) {
  memory_.type = cuda::kAllocationPinned;
  memory_.location = access_.location = {cuda::kLocationDevice, device_};
  access_.flags = cuda::kAccessReadWrite;
  int supported = 0;
  PLEXRL_TRY(
      PLEXRL_CUDA(*driver_, device_attribute, &supported, cuda::kAttributeRdmaWithVmm, device_));
  memory_.flags.gpu_direct_rdma = rdma && supported != 0 ? 1 : 0;
  Status status = try_create();
  if (!status.ok() && this->rdma() && status.code() != Code::NO_CAPACITY && driver_->lost().ok()) {
    PLEXRL_LOG(kWarning, "%s: no memory that network adapters can reach: %s", name_.c_str(),
               status.text().c_str());
    memory_.flags.gpu_direct_rdma = 0;
    status = try_create();
  }
  return status;
}

Status CudaDevice::try_create() {
  const Entered entered(*this);
  PLEXRL_TRY(entered.status());
  PLEXRL_TRY(
      PLEXRL_CUDA(*driver_, granularity, &granularity_, &memory_, cuda::kGranularityMinimum));
  if (granularity_ == 0) return error(Code::IO, "the driver gives a granularity of 0 bytes");
  cuda::MemHandle handle = 0;
  PLEXRL_TRY(PLEXRL_CUDA(*driver_, memory_create, &handle, granularity_, &memory_, 0));
  return PLEXRL_CUDA(*driver_, memory_release, handle);
}

}  // namespace plexrl::device
