// SPDX-License-Identifier: Apache-2.0
// NVML by dlopen. Of its interface only what is used is declared here; names and layouts are those
// of NVIDIA's NVML reference, which keeps them over releases by the suffix _vN.
#include <dlfcn.h>

#include <vector>

#include "device/device_users.h"

namespace plexrl::device {
namespace {

using NvmlResult = int;
using NvmlDevice = void*;
constexpr NvmlResult kSuccess = 0;
constexpr NvmlResult kInsufficientSize = 7;
// More processes than a device ever has; a driver that says more is not believed.
constexpr unsigned kMaxProcesses = 4096;

// nvmlProcessInfo_t of version 3.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

class NvmlUsers final : public DeviceUsers {
 public:
  NvmlUsers() = default;
  NvmlUsers(const NvmlUsers&) = delete;
  NvmlUsers& operator=(const NvmlUsers&) = delete;
  ~NvmlUsers() override {
    if (ready_) (void)shutdown_();
    if (library_ != nullptr) (void)::dlclose(library_);
  }

  Status open(const std::string& path) {
    library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return error(Code::UNSUPPORTED, "no NVML on this node: %s", dlerror());
    PLEXRL_TRY(find(init_, "nvmlInit_v2"));
    PLEXRL_TRY(find(shutdown_, "nvmlShutdown"));
    PLEXRL_TRY(find(count_, "nvmlDeviceGetCount_v2"));
    PLEXRL_TRY(find(handle_, "nvmlDeviceGetHandleByIndex_v2"));
    PLEXRL_TRY(find(processes_, "nvmlDeviceGetComputeRunningProcesses_v3"));
    if (const NvmlResult result = init_(); result != kSuccess)
      return error(Code::UNSUPPORTED, "nvmlInit: error %d", result);
    ready_ = true;
    return {};
  }

  [[nodiscard]] Result<std::set<pid_t>> pids() override {
    unsigned devices = 0;
    if (const NvmlResult result = count_(&devices); result != kSuccess)
      return error(Code::IO, "nvmlDeviceGetCount: error %d", result);
    std::set<pid_t> found;
    for (unsigned i = 0; i < devices; ++i) PLEXRL_TRY(add(i, found));
    return found;
  }

 private:
  template <class Function>
  Status find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library_, symbol));
    return function != nullptr ? Status() : error(Code::UNSUPPORTED, "NVML has no %s", symbol);
  }

  Status add(unsigned index, std::set<pid_t>& found) {
    NvmlDevice device = nullptr;
    if (const NvmlResult result = handle_(index, &device); result != kSuccess)
      return error(Code::IO, "nvmlDeviceGetHandleByIndex %u: error %d", index, result);
    std::vector<ProcessInfo> list(64);
    for (;;) {
      auto count = static_cast<unsigned>(list.size());
      const NvmlResult result = processes_(device, &count, list.data());
      if (result == kInsufficientSize && list.size() < kMaxProcesses) {
        list.resize(list.size() * 2);
        continue;
      }
      if (result != kSuccess || count > list.size())
        return error(Code::IO, "processes of device %u: error %d", index, result);
      for (unsigned i = 0; i < count; ++i) found.insert(static_cast<pid_t>(list[i].pid));
      return {};
    }
  }

  void* library_ = nullptr;
  bool ready_ = false;
  NvmlResult (*init_)() = nullptr;
  NvmlResult (*shutdown_)() = nullptr;
  NvmlResult (*count_)(unsigned*) = nullptr;
  NvmlResult (*handle_)(unsigned, NvmlDevice*) = nullptr;
  NvmlResult (*processes_)(NvmlDevice, unsigned*, ProcessInfo*) = nullptr;
};

}  // namespace

Result<std::unique_ptr<DeviceUsers>> open_nvml_users(const std::string& library) {
  auto users = std::make_unique<NvmlUsers>();
  PLEXRL_TRY(users->open(library));
  return std::unique_ptr<DeviceUsers>(std::move(users));
}

}  // namespace plexrl::device
