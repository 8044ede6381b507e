// SPDX-License-Identifier: Apache-2.0
#include "fakes/fake_backend.h"

#include <utility>

namespace plexrl::device {
namespace {

Status strike(std::atomic<int>& countdown, const char* what) {
  if (countdown == 0 || --countdown != 0) return {};
  return error(Code::IO, "%s: fault on demand", what);
}

}  // namespace

Result<std::unique_ptr<FakeBackend>> FakeBackend::create(std::size_t chunk_bytes,
                                                         std::size_t chunk_count) {
  PLEXRL_ASSIGN(auto pool, create_cpu_pool("fake-device", chunk_bytes, chunk_count));
  return std::make_unique<FakeBackend>(std::move(pool), chunk_bytes, chunk_count);
}

Result<std::unique_ptr<Reservation>> FakeBackend::reserve(std::size_t bytes) {
  PLEXRL_TRY(strike(faults_.reserve, "reserve"));
  return CpuBackend::reserve(bytes);
}

Status FakeBackend::map_run(AddressRange& range, const ChunkRun& run) {
  PLEXRL_TRY(strike(faults_.map_run, "map"));
  return CpuBackend::map_run(range, run);
}

Status FakeBackend::unmap(Reservation& where) {
  PLEXRL_TRY(strike(faults_.unmap, "unmap"));
  return CpuBackend::unmap(where);
}

Status FakeBackend::copy_in(std::byte* device, const std::byte* host, std::size_t bytes) {
  PLEXRL_TRY(strike(faults_.copy_in, "copy in"));
  return CpuBackend::copy_in(device, host, bytes);
}

Status FakeBackend::copy_out(std::byte* host, const std::byte* device, std::size_t bytes) {
  PLEXRL_TRY(strike(faults_.copy_out, "copy out"));
  return CpuBackend::copy_out(host, device, bytes);
}

Status FakeBackend::zero(std::byte* device, std::size_t bytes) {
  PLEXRL_TRY(strike(faults_.zero, "zero"));
  return CpuBackend::zero(device, bytes);
}

}  // namespace plexrl::device
