// SPDX-License-Identifier: Apache-2.0
// Copies between the memory of a segment and chunks of the host pool: what every suspend, commit
// and resume does, and what `plexrl bench swap` measures. Host chunks that are not all in `mapped`
// are mapped for the time of the copy. Any thread; not twice at a time for one reservation.
#pragma once

#include <span>

#include "device/host_pool.h"
#include "device/mapped_pool.h"

namespace plexrl::device {

// The segment's bytes to as many chunks as they need; the rest of the last chunk is zeroed, so that
// nothing of its former owner stays there.
[[nodiscard]] Status copy_to_host(DeviceBackend& device, const HostPool& host,
                                  const Reservation& segment, std::span<const ChunkIndex> chunks,
                                  const MappedPool* mapped = nullptr);
// And back.
[[nodiscard]] Status copy_from_host(DeviceBackend& device, const HostPool& host,
                                    Reservation& segment, std::span<const ChunkIndex> chunks,
                                    const MappedPool* mapped = nullptr);

}  // namespace plexrl::device
