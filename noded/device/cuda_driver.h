// SPDX-License-Identifier: Apache-2.0
// CudaDriver: the driver library, opened at run time, and what its errors mean. The library stays
// open for the life of the object. Any thread.
//
// Some errors end the process's use of the device: the context is damaged and every later call
// fails ("sticky" in the driver's documentation). The first of them is kept: from then on check()
// answers with it, whatever the driver says, and lost() tells it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "device/cuda_api.h"

namespace plexrl::device {

class CudaDriver {
 public:
  // `library`: a file name for dlopen, "libcuda.so.1" for the system's. UNSUPPORTED names what is
  // missing: the library, or a function of it (driver too old). Does not touch a device.
  [[nodiscard]] static Result<std::unique_ptr<CudaDriver>> open(const std::string& library);
  ~CudaDriver();
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  [[nodiscard]] const cuda::Functions& call() const noexcept { return functions_; }

  // The Status of a call: out of memory is NO_CAPACITY, not supported UNSUPPORTED, no device
  // NOT_FOUND, a lost device LOST, the rest IO. The text has the driver's name of the error.
  [[nodiscard]] Status check(cuda::Result result, const char* function) const;
  // Ok, or the first error after which the device cannot be used by this process any more.
  [[nodiscard]] Status lost() const;

 private:
  CudaDriver() = default;
  [[nodiscard]] std::string text_of(cuda::Result result) const;

  void* library_ = nullptr;
  cuda::Functions functions_;
  mutable std::mutex mutex_;
  mutable Status lost_;  // guarded by mutex_
};

// PLEXRL_CUDA(driver, member, arguments...): calls and gives the Status, with the function's name.
#define PLEXRL_CUDA(driver, member, ...) \
  (driver).check((driver).call().member(__VA_ARGS__), ::plexrl::device::cuda::symbol::member)

// True for errors after which the context is damaged.
[[nodiscard]] bool is_sticky(cuda::Result result) noexcept;

}  // namespace plexrl::device
