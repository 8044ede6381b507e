// SPDX-License-Identifier: Apache-2.0
#include "gpu/raw_driver.h"

#include <dlfcn.h>

#include "base/clock.h"

namespace plexrl::gpu {

using device::CudaDevice;
namespace cuda = device::cuda;

double seconds_now() { return static_cast<double>(system_clock().now().ns) * 1e-9; }

Result<RawDriver> RawDriver::open(const std::string& library, const CudaDevice& device) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_NODELETE);
  if (handle == nullptr) return error(Code::UNSUPPORTED, "no CUDA driver: %s", ::dlerror());
  RawDriver raw(device);
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, symbol));
    return function != nullptr;
  };
  const bool all =
      find(raw.host_alloc_, "cuMemHostAlloc") && find(raw.host_free_, "cuMemFreeHost") &&
      find(raw.device_alloc_, "cuMemAlloc_v2") && find(raw.device_free_, "cuMemFree_v2");
  ::dlclose(handle);
  if (!all) return error(Code::UNSUPPORTED, "the CUDA driver lacks a plain allocation function");
  return raw;
}

Result<std::byte*> RawDriver::host_alloc(std::size_t bytes) const {
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  void* at = nullptr;
  PLEXRL_TRY(device_->driver().check(host_alloc_(&at, bytes, 1), "cuMemHostAlloc"));
  return static_cast<std::byte*>(at);
}

void RawDriver::host_free(std::byte* at) const {
  const CudaDevice::Entered entered(*device_);
  if (entered.status().ok()) host_free_(at);
}

Result<cuda::DevicePtr> RawDriver::device_alloc(std::size_t bytes) const {
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  cuda::DevicePtr at = 0;
  PLEXRL_TRY(device_->driver().check(device_alloc_(&at, bytes), "cuMemAlloc"));
  return at;
}

void RawDriver::device_free(cuda::DevicePtr at) const {
  const CudaDevice::Entered entered(*device_);
  if (entered.status().ok()) device_free_(at);
}

template <class Issue>
Result<double> RawDriver::timed(Issue&& issue) const {
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  const device::CudaDriver& driver = device_->driver();
  cuda::Stream stream = nullptr;
  PLEXRL_TRY(PLEXRL_CUDA(driver, stream_create, &stream, cuda::kStreamNonBlocking));
  const double start = seconds_now();
  Status status = issue(driver, stream);
  if (status.ok()) status = PLEXRL_CUDA(driver, context_synchronize);
  const double took = seconds_now() - start;
  driver.call().stream_destroy(stream);
  PLEXRL_TRY(status);
  return took;
}

Result<double> RawDriver::time_in(cuda::DevicePtr to, const std::byte* from,
                                  std::size_t bytes) const {
  return timed([&](const device::CudaDriver& driver, cuda::Stream stream) {
    return PLEXRL_CUDA(driver, copy_in, to, from, bytes, stream);
  });
}

Result<double> RawDriver::time_out(std::byte* to, cuda::DevicePtr from, std::size_t bytes) const {
  return timed([&](const device::CudaDriver& driver, cuda::Stream stream) {
    return PLEXRL_CUDA(driver, copy_out, to, from, bytes, stream);
  });
}

}  // namespace plexrl::gpu
