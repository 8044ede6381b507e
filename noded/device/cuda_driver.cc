// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/log.h"

namespace plexrl::device {
namespace {

const char* dl_text() {
  const char* const text = ::dlerror();
  return text == nullptr ? "unknown reason" : text;
}

Code code_of(cuda::Result result) {
  switch (result) {
    case cuda::kOutOfMemory:
      return Code::NO_CAPACITY;
    case cuda::kNotSupported:
      return Code::UNSUPPORTED;
    case cuda::kNoDevice:
    case cuda::kInvalidDevice:
      return Code::NOT_FOUND;
    default:
      return Code::IO;
  }
}

}  // namespace

bool is_sticky(cuda::Result result) noexcept {
  constexpr std::array kSticky = {cuda::kDeinitialized,
                                  cuda::kEccUncorrectable,
                                  cuda::kNvlinkUncorrectable,
                                  cuda::kIllegalAddress,
                                  cuda::kLaunchTimeout,
                                  cuda::kContextIsDestroyed,
                                  cuda::kAssert,
                                  cuda::kHardwareStackError,
                                  cuda::kIllegalInstruction,
                                  cuda::kMisalignedAddress,
                                  cuda::kInvalidAddressSpace,
                                  cuda::kInvalidPc,
                                  cuda::kLaunchFailed,
                                  cuda::kUnknown};
  return std::find(kSticky.begin(), kSticky.end(), result) != kSticky.end();
}

Result<std::unique_ptr<CudaDriver>> CudaDriver::open(const std::string& library) {
  std::unique_ptr<CudaDriver> driver(new CudaDriver);
  // Never unloaded: threads of the driver may run its code to the end of the process.
  driver->library_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (driver->library_ == nullptr)
    return error(Code::UNSUPPORTED, "no CUDA driver on this node: %s", dl_text());
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    void* const found = ::dlsym(driver->library_, symbol);
    if (found == nullptr && missing == nullptr) missing = symbol;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
#define PLEXRL_CUDA_FIND(member, symbol, parameters) find(driver->functions_.member, #symbol);
  PLEXRL_CUDA_FUNCTIONS(PLEXRL_CUDA_FIND)
#undef PLEXRL_CUDA_FIND
  if (missing != nullptr)
    return error(Code::UNSUPPORTED, "'%s' has no function %s: a newer CUDA driver is needed",
                 library.c_str(), missing);
  return driver;
}

CudaDriver::~CudaDriver() {
  if (library_ != nullptr) ::dlclose(library_);
}

std::string CudaDriver::text_of(cuda::Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (functions_.error_name(result, &name) != cuda::kSuccess || name == nullptr)
    return "error " + std::to_string(result);
  if (functions_.error_text(result, &text) != cuda::kSuccess || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

Status CudaDriver::check(cuda::Result result, const char* function) const {
  const std::scoped_lock lock(mutex_);
  if (!lost_.ok()) return lost_;
  if (result == cuda::kSuccess) return {};
  const std::string text = text_of(result);
  if (!is_sticky(result)) return error(code_of(result), "%s: %s", function, text.c_str());
  lost_ = error(Code::LOST, "%s: %s: the device is lost to this process, end it", function,
                text.c_str());
  PLEXRL_LOG(kError, "%s", lost_.text().c_str());
  return lost_;
}

Status CudaDriver::lost() const {
  const std::scoped_lock lock(mutex_);
  return lost_;
}

}  // namespace plexrl::device
