// SPDX-License-Identifier: Apache-2.0
#include "device/segment_copy.h"

#include "device/stream_copy.h"

namespace plexrl::device {

Status copy_to_host(DeviceBackend& device, const HostPool& host, const Reservation& segment,
                    std::span<const ChunkIndex> chunks) {
  const std::size_t bytes = segment.bytes();
  PLEXRL_ASSIGN(auto range, host.map(chunks, AddressRange::Access::kReadWrite));
  PLEXRL_TRY(device.copy_out(range.data(), segment.data(), bytes));
  stream_zero(range.data() + bytes, range.bytes() - bytes, best_copy_path());
  return {};
}

Status copy_from_host(DeviceBackend& device, const HostPool& host, Reservation& segment,
                      std::span<const ChunkIndex> chunks) {
  PLEXRL_ASSIGN(const auto range, host.map(chunks, AddressRange::Access::kRead));
  return device.copy_in(segment.data(), range.data(), segment.bytes());
}

Status zero_tail(DeviceBackend& device, Reservation& segment) {
  const std::size_t bytes = segment.bytes();
  const std::size_t chunks = (bytes + device.chunk_bytes() - 1) / device.chunk_bytes();
  return device.zero(segment.data() + bytes, chunks * device.chunk_bytes() - bytes);
}

}  // namespace plexrl::device
