// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "device/cuda_backend.h"
#include "gpu/device_suite.h"

namespace plexrl::gpu {
namespace {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

}  // namespace

Field::Field(std::string name, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  json_ = json_string(name) + ":" + (std::isfinite(value) ? text : "null");
}
Field::Field(std::string name, std::uint64_t value)
    : json_(json_string(name) + ":" + std::to_string(value)) {}
Field::Field(std::string name, std::string_view value)
    : json_(json_string(name) + ":" + json_string(value)) {}

void GpuRun::row(std::string_view path, const std::vector<Field>& fields) {
  std::string text = "{" + Field("path", path).json();
  for (const Field& field : fields) text += "," + field.json();
  rows.push_back(text + "," + Field("device", std::string_view(device_name)).json() + "}");
  std::fprintf(stderr, "        %s\n", rows.back().c_str());
}

void GpuRun::count(const std::string& name, const Status& status) {
  (status.ok() ? passed : failed) += 1;
  std::fprintf(stderr, "%s %s%s%s\n", status.ok() ? "ok     " : "not ok ", name.c_str(),
               status.ok() ? "" : ": ", status.ok() ? "" : status.to_string().c_str());
}

void GpuRun::skip(const std::string& name, const std::string& why) {
  ++skipped;
  std::fprintf(stderr, "skipped %s: %s\n", name.c_str(), why.c_str());
}

int finish(const GpuRun& run) {
  std::puts("[");
  for (std::size_t i = 0; i < run.rows.size(); ++i)
    std::printf("  %s%s\n", run.rows[i].c_str(), i + 1 < run.rows.size() ? "," : "");
  std::puts("]");
  std::fprintf(stderr, "%d passed, %d failed, %d skipped\n", run.passed, run.failed, run.skipped);
  return run.failed == 0 ? 0 : 1;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? std::nan("") : values[values.size() / 2];
}

double gb_per_s(std::uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds / 1e9;
}

void run_device_suite(GpuRun& run) {
  for (const device::DeviceCase& one : device::device_cases()) {
    device::CudaOptions options;
    options.library = run.options.library;
    options.device = run.options.device;
    options.chunk_bytes = std::size_t{2} << 20;
    options.chunk_count = device::kSuiteChunks;
    auto backend = device::open_cuda_backend(options);
    if (!backend) {
      run.count(one.name, backend.error());
      continue;
    }
    check::Checker check;
    one.run(**backend, check);
    std::string text;
    for (const std::string& failure : check.failures()) text += "\n        " + failure;
    run.count(one.name, text.empty() ? Status() : Status(Code::INTERNAL, text));
  }
}

int check_count() { return static_cast<int>(device::device_cases().size()) + kMeasurements; }

}  // namespace plexrl::gpu
