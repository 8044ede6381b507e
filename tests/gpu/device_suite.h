// SPDX-License-Identifier: Apache-2.0
// What every DeviceBackend must do, as cases that run on any of them, real devices included: device
// memory is reached by copies only. Run by tests/unit/device on cpu, fake and cuda over the stub
// driver, and by the program gpu_check on a GPU.
#pragma once

#include <span>

#include "device/device_backend.h"
#include "gpu/checker.h"

namespace plexrl::device {

// Cases use at most this many chunks.
inline constexpr std::size_t kSuiteChunks = 8;

struct DeviceCase {
  const char* name;
  // The backend is fresh, with kSuiteChunks chunks, all free.
  void (*run)(DeviceBackend& backend, check::Checker& check);
  // Asks for an error where the cpu backend faults.
  bool refuses_unmapped = false;
};
[[nodiscard]] std::span<const DeviceCase> device_cases();

}  // namespace plexrl::device
