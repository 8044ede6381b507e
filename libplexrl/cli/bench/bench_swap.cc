// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_swap.h"

#include <fstream>
#include <string>

#include "cli/bench/swap_copy.h"
#include "cli/output.h"

namespace plexrl::cli {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Of MemAvailable: others live here too.
constexpr std::uint64_t kShareOfFree = 2;

// 0 when the kernel does not tell.
std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::uint64_t kib = 0; file >> name >> kib;) {
    if (name == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return 0;
}

// Two pools, the device's and the host's.
std::uint64_t largest_that_fits() { return available_bytes() / kShareOfFree / 2; }

nlohmann::json row(const char* path, const SwapSpeed& speed, double huge_pages) {
  return {{"bench", "swap"},        {"path", path},
          {"bytes", speed.bytes},   {"repeats", speed.repeats},
          {"gbps", speed.gbps},     {"raw_gbps", speed.raw_gbps},
          {"ratio", speed.ratio()}, {"huge_pages", huge_pages}};
}

Result<nlohmann::json> copy_rows(const std::vector<std::uint64_t>& sizes) {
  nlohmann::json rows = nlohmann::json::array();
  PLEXRL_ASSIGN(SwapCopy copy, SwapCopy::create(sizes.back()));
  for (const std::uint64_t bytes : sizes) {
    PLEXRL_ASSIGN(const SwapSpeed out, copy.device_to_host(bytes));
    rows.push_back(row("device-host", out, copy.huge_pages()));
    PLEXRL_ASSIGN(const SwapSpeed in, copy.host_to_device(bytes));
    rows.push_back(row("host-device", in, copy.huge_pages()));
  }
  return rows;
}

}  // namespace

std::vector<std::uint64_t> swap_sizes(std::uint64_t max_bytes) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = kMiB; bytes <= max_bytes; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

Result<nlohmann::json> bench_swap(const BenchSwapOptions& options) {
  if (options.max_mib == 0 || options.max_mib > (std::uint64_t{1} << 20))
    return error(Code::INVALID_ARGUMENT, "bench swap: --max-mib is from 1 to 1048576");
  std::vector<std::uint64_t> sizes = swap_sizes(options.max_mib * kMiB);
  const std::uint64_t limit = largest_that_fits();
  while (!sizes.empty() && sizes.back() > limit) {
    print_progress("no rows of " + format_bytes(sizes.back()) +
                   ": two pools of that size are more" +
                   " than half of the memory that is available");
    sizes.pop_back();
  }
  if (sizes.empty())
    return error(Code::NO_CAPACITY, "bench swap: this machine has no memory for pools of 1 MiB");
  return copy_rows(sizes);
}

}  // namespace plexrl::cli
