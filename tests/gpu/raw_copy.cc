// SPDX-License-Identifier: Apache-2.0
#include "gpu/raw_copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gpu/raw_driver.h"

namespace plexrl::gpu {
namespace {

// The driver pins slowly (2 GB/s were seen), so larger moves are copied piece by piece.
constexpr std::uint64_t kPiece = std::uint64_t{2} << 30;

template <class Copy>
Result<double> in_pieces(std::uint64_t bytes, const Copy& copy) {
  double total = 0;
  for (std::uint64_t at = 0; at < bytes; at += kPiece) {
    PLEXRL_ASSIGN(const double took, copy(std::min(kPiece, bytes - at)));
    total += took;
  }
  return total;
}

Result<double> raw_memcpy(std::uint64_t bytes_out, std::uint64_t bytes_in) {
  const std::uint64_t most = std::min(kPiece, std::max(bytes_out, bytes_in));
  std::vector<std::byte> from(most, std::byte{1});
  std::vector<std::byte> to(most, std::byte{2});
  const auto copy = [&](std::uint64_t bytes) -> Result<double> {
    const double start = seconds_now();
    std::memcpy(to.data(), from.data(), bytes);
    return seconds_now() - start;
  };
  PLEXRL_ASSIGN(const double out, in_pieces(bytes_out, copy));
  PLEXRL_ASSIGN(const double in, in_pieces(bytes_in, copy));
  return out + in;
}

Result<double> raw_driver_copy(const RawDriver& raw, std::byte* host, device::cuda::DevicePtr at,
                               std::uint64_t bytes_out, std::uint64_t bytes_in) {
  PLEXRL_TRY(raw.time_out(host, at, 1 << 20).status());  // warms up
  PLEXRL_ASSIGN(const double out, in_pieces(bytes_out, [&](std::uint64_t bytes) {
                  return raw.time_out(host, at, bytes);
                }));
  PLEXRL_ASSIGN(const double in, in_pieces(bytes_in, [&](std::uint64_t bytes) {
                  return raw.time_in(at, host, bytes);
                }));
  return out + in;
}

}  // namespace

Result<double> raw_copy_seconds(const GpuOptions& options, int driver, std::uint64_t bytes_out,
                                std::uint64_t bytes_in) {
  if (driver < 0) return raw_memcpy(bytes_out, bytes_in);
  PLEXRL_ASSIGN(const auto opened,
                device::CudaDevice::open(options.library, driver, /*rdma=*/false));
  PLEXRL_ASSIGN(const RawDriver raw, RawDriver::open(options.library, *opened));
  const std::uint64_t most =
      std::max<std::uint64_t>(1 << 20, std::min(kPiece, std::max(bytes_out, bytes_in)));
  PLEXRL_ASSIGN(std::byte* const host, raw.host_alloc(most));
  Result<double> took = error(Code::NO_CAPACITY, "no device memory for a raw copy");
  if (const auto at = raw.device_alloc(most)) {
    took = raw_driver_copy(raw, host, *at, bytes_out, bytes_in);
    raw.device_free(*at);
  } else {
    took = at.error();
  }
  raw.host_free(host);
  return took;
}

}  // namespace plexrl::gpu
