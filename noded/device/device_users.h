// SPDX-License-Identifier: Apache-2.0
// DeviceUsers: which processes use the devices of this node, as the driver sees it. Real on GPUs by
// NVML; a fake in tests. Loop thread; a call takes about a millisecond.
#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <string>

#include "base/result.h"

namespace plexrl::device {

class DeviceUsers {
 public:
  virtual ~DeviceUsers() = default;
  // IO: the driver does not say. Numbers are those of this process's PID namespace.
  [[nodiscard]] virtual Result<std::set<pid_t>> pids() = 0;
};

// NVML, opened at run time. UNSUPPORTED names what is missing. `library`: "libnvidia-ml.so.1".
[[nodiscard]] Result<std::unique_ptr<DeviceUsers>> open_nvml_users(const std::string& library);

}  // namespace plexrl::device
