// SPDX-License-Identifier: Apache-2.0
// GpuRun: what the parts of gpu_check share: options, the device's name, the rows and the counts.
// Rows are flat JSON objects and every row has `device`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace plexrl::gpu {

struct GpuOptions {
  std::string library = "libcuda.so.1";
  int device = 0;
  bool quick = false;  // a few MiB only, for a run over the stub driver
};

// {"name", number} or {"name", "text"} of a row.
class Field {
 public:
  Field(std::string name, double value);
  Field(std::string name, std::uint64_t value);
  Field(std::string name, std::string_view value);
  [[nodiscard]] const std::string& json() const { return json_; }

 private:
  std::string json_;
};

struct GpuRun {
  GpuOptions options;
  std::string device_name;
  std::vector<std::string> rows;
  int passed = 0, failed = 0, skipped = 0;

  void row(std::string_view path, const std::vector<Field>& fields);
  // Counts a part and says on stderr what became of it.
  void count(const std::string& name, const Status& status);
  void skip(const std::string& name, const std::string& why);
};

// Prints the rows as one array on stdout and the counts on stderr; the exit status.
[[nodiscard]] int finish(const GpuRun& run);

[[nodiscard]] double median(std::vector<double> values);
[[nodiscard]] double gb_per_s(std::uint64_t bytes, double seconds);

// The parts. Each counts its own checks.
void run_device_suite(GpuRun& run);
inline constexpr int kMeasurements = 5;  // swap, both ways, switch, map costs, pinning
void measure_swap(GpuRun& run);
void measure_map_costs(GpuRun& run);
void measure_pinning(GpuRun& run);
// Checks that a run counts at least: for what is skipped without a device.
[[nodiscard]] int check_count();

}  // namespace plexrl::gpu
