// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/gpu_run.h"

namespace plexrl::gpu {

// Seconds that plain copies of so many bytes to the host and back take, one after the other: with a
// driver's device asynchronous ones between plain device memory and memory that the driver pinned,
// else memcpy between touched memory.
[[nodiscard]] Result<double> raw_copy_seconds(const GpuOptions& options, int driver,
                                              std::uint64_t bytes_out, std::uint64_t bytes_in);

}  // namespace plexrl::gpu
