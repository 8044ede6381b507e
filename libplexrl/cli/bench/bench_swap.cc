// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_swap.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/op_load.h"
#include "cli/bench/swap_copy.h"
#include "cli/bench/swap_switch.h"
#include "cli/bench/temporary_folder.h"
#include "cli/output.h"
#include "device/device_backend.h"
#include "device/pool_marks.h"
#include "store/blob_bench.h"

namespace plexrl::cli {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// plexrld's default.
constexpr std::size_t kPoolChunk = std::size_t{2} << 20;

constexpr std::uint64_t kDiskBytesPerRow = std::uint64_t{1} << 30;
// A busy disk gets fewer rounds, not the user a longer wait.
constexpr Duration kDiskTimePerRow{5 * kSecond.ns};
constexpr std::uint64_t kMinRounds = 3;
constexpr std::uint64_t kMaxRounds = 41;

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

// `copies`: how often the measurement holds the bytes in memory.
std::vector<std::uint64_t> sizes_that_fit(const BenchSwapOptions& options, const char* paths,
                                          std::uint64_t copies) {
  std::vector<std::uint64_t> sizes = swap_sizes(options.max_mib * kMiB);
  const std::uint64_t limit = available_bytes() / kShareOfFree / copies;
  while (!sizes.empty() && sizes.back() > limit) {
    print_progress(std::string(paths) + ": no rows of " + format_bytes(sizes.back()) +
                   ", which need " + format_bytes(sizes.back() * copies) +
                   ": more than half of the memory that is available");
    sizes.pop_back();
  }
  return sizes;
}

nlohmann::json row(const char* path, const SwapSpeed& speed, double huge_pages) {
  return {{"bench", "swap"},
          {"path", path},
          {"bytes", speed.bytes},
          {"repeats", speed.repeats},
          {"gbps", speed.gbps},
          {"raw_gbps", speed.raw_gbps},
          {"ratio", speed.ratio},
          {"ratio_after_larger", speed.ratio_after_larger},
          {"ratio_filled", speed.ratio_filled},
          {"huge_pages", huge_pages}};
}

Status add_copy_rows(const BenchSwapOptions& options, nlohmann::json& rows) {
  const auto sizes = sizes_that_fit(options, "device and host", 2);
  if (sizes.empty()) return {};
  PLEXRL_ASSIGN(SwapCopy copy, SwapCopy::create(sizes.back()));
  for (const std::uint64_t bytes : sizes) {
    PLEXRL_ASSIGN(const SwapSpeed out, copy.device_to_host(bytes));
    rows.push_back(row("device-host", out, copy.huge_pages()));
    PLEXRL_ASSIGN(const SwapSpeed in, copy.host_to_device(bytes));
    rows.push_back(row("host-device", in, copy.huge_pages()));
  }
  return {};
}

nlohmann::json disk_row(const char* path, std::uint64_t bytes, const std::vector<double>& blob,
                        const std::vector<double>& raw, const std::string& method) {
  return {{"bench", "swap"},
          {"path", path},
          {"bytes", bytes},
          {"repeats", blob.size()},
          {"gbps", median_gbps(bytes, blob)},
          {"raw_gbps", median_gbps(bytes, raw)},
          {"ratio", median_ratio(raw, blob)},
          {"method", method}};
}

double in_seconds(Duration d) { return static_cast<double>(d.ns) / 1e9; }

// Host memory as plexrld has it, in huge pages where the kernel gives them.
std::size_t chunks_for(std::uint64_t bytes) { return (bytes + kPoolChunk - 1) / kPoolChunk; }

Result<UniqueFd> make_host_pool(const char* name, std::uint64_t bytes) {
  return device::create_cpu_pool(name, kPoolChunk, chunks_for(bytes));
}

// As runtime::host_memory has them.
Result<store::ChunkHooks> hooks_of(const UniqueFd& pool, std::uint64_t bytes) {
  PLEXRL_ASSIGN(auto opened, device::PoolMarks::open(pool.get(), kPoolChunk, chunks_for(bytes)));
  const auto marks = std::make_shared<device::PoolMarks>(std::move(opened));
  return store::ChunkHooks{
      [marks](std::uint32_t chunk, std::size_t size) { marks->raise(chunk, size); },
      [marks](std::uint32_t chunk, std::byte* data, std::size_t size) {
        marks->clean(chunk, data, size);
      }};
}

Status add_disk_rows_of(const std::string& directory, const store::BlobBenchPools& pools,
                        std::uint64_t bytes, nlohmann::json& rows) {
  std::vector<double> write, raw_write, read, raw_read;
  std::string method;
  const std::uint64_t repeats = std::clamp(kDiskBytesPerRow / bytes, kMinRounds, kMaxRounds);
  const TimePoint enough = system_clock().now() + kDiskTimePerRow;
  for (std::uint64_t i = 0; i < repeats; ++i) {
    if (i >= kMinRounds && system_clock().now() >= enough) break;
    PLEXRL_ASSIGN(const store::BlobBench round,
                  store::bench_blob(directory, pools, bytes, i % 2 == 1));
    write.push_back(in_seconds(round.write));
    raw_write.push_back(in_seconds(round.raw_write));
    read.push_back(in_seconds(round.read));
    raw_read.push_back(in_seconds(round.raw_read));
    method = round.method;
  }
  rows.push_back(disk_row("host-disk", bytes, write, raw_write, method));
  rows.push_back(disk_row("disk-host", bytes, read, raw_read, method));
  return {};
}

Status add_disk_rows(const BenchSwapOptions& options, nlohmann::json& rows) {
  const auto sizes = sizes_that_fit(options, "disk", 2);
  if (sizes.empty()) return {};
  PLEXRL_ASSIGN(const UniqueFd from, make_host_pool("bench-from", sizes.back()));
  PLEXRL_ASSIGN(const UniqueFd to, make_host_pool("bench-to", sizes.back()));
  PLEXRL_ASSIGN(auto from_hooks, hooks_of(from, sizes.back()));
  PLEXRL_ASSIGN(auto to_hooks, hooks_of(to, sizes.back()));
  const store::BlobBenchPools pools{from.get(), to.get(), kPoolChunk, std::move(from_hooks),
                                    std::move(to_hooks)};
  PLEXRL_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make(options.directory));
  std::error_code failure;
  for (const std::uint64_t bytes : sizes) {
    const auto space = std::filesystem::space(folder.path(), failure);
    if (failure)
      return error(Code::IO, "bench swap: '%s': %s", folder.path().c_str(),
                   failure.message().c_str());
    if (space.available / 2 < bytes * 2) {
      print_progress("disk: no rows of " + format_bytes(bytes) +
                     ": twice as much is more than half"
                     " of what is free in '" +
                     folder.path() + "'");
      break;
    }
    PLEXRL_TRY(add_disk_rows_of(folder.path(), pools, bytes, rows));
  }
  return {};
}

Status add_switch_rows(const BenchSwapOptions& options, nlohmann::json& rows) {
  const std::uint64_t needed = switch_memory_bytes();
  if (::geteuid() != 0) {
    print_progress("no rows of switches: they need a plexrld with jobs, which only root may open");
    return {};
  }
  if (available_bytes() < needed + needed / 4) {
    print_progress("no rows of switches: they need " + format_bytes(needed) +
                   " of memory and a quarter to spare");
    return {};
  }
  std::string program = options.plexrld;
  if (program.empty()) {
    PLEXRL_ASSIGN(program, find_plexrld());
  }
  PLEXRL_ASSIGN(const auto costs, measure_switches(program, options.switch_repeats));
  for (const SwitchCost& cost : costs)
    rows.push_back({{"bench", "swap"},
                    {"path", "switch"},
                    {"from", cost.from},
                    {"to", cost.to},
                    {"bytes", cost.bytes},
                    {"repeats", cost.repeats},
                    {"switch_exposed_s", cost.exposed_s},
                    {"switch_hidden_s", cost.hidden_s},
                    {"raw_copy_s", cost.raw_copy_s},
                    {"exposed_ratio", cost.exposed_ratio()},
                    {"commit_stall_s", cost.commit_stall_s},
                    {"step_s", cost.step_s}});
  return {};
}

}  // namespace

std::vector<std::uint64_t> swap_sizes(std::uint64_t max_bytes) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = kMiB; bytes <= max_bytes; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

Result<nlohmann::json> bench_swap(const BenchSwapOptions& options) {
  if (options.max_mib == 0 || options.max_mib > (std::uint64_t{1} << 20) ||
      options.switch_repeats == 0 || options.switch_repeats > 1000)
    return error(Code::INVALID_ARGUMENT,
                 "bench swap: --max-mib is from 1 to 1048576, --repeats from 1 to 1000");
  nlohmann::json rows = nlohmann::json::array();
  PLEXRL_TRY(add_copy_rows(options, rows));
  if (options.disk) PLEXRL_TRY(add_disk_rows(options, rows));
  if (options.switches) PLEXRL_TRY(add_switch_rows(options, rows));
  return rows;
}

}  // namespace plexrl::cli
