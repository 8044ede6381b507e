// SPDX-License-Identifier: Apache-2.0
// gpu_check: what has to be known of a GPU. Rows as one JSON array on stdout, progress on stderr.
// Exit status 0 all passed, 1 something failed, 2 usage, 77 no device: everything was skipped.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/cuda_device.h"
#include "gpu/gpu_run.h"

namespace plexrl::gpu {
namespace {

constexpr int kSkipped = 77;

int usage() {
  std::fputs("gpu_check [--device N] [--library FILE] [--quick]\n", stderr);
  return 2;
}

bool parse(int argc, char** argv, GpuOptions& options) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      options.quick = true;
    } else if (i + 1 < argc && std::strcmp(argv[i], "--device") == 0) {
      options.device = std::atoi(argv[++i]);
    } else if (i + 1 < argc && std::strcmp(argv[i], "--library") == 0) {
      options.library = argv[++i];
    } else {
      return false;
    }
  }
  return true;
}

int no_device(const Status& why) {
  std::fprintf(stderr, "%s\nno GPU: %d checks skipped\n", why.to_string().c_str(), check_count());
  std::puts("[]");
  return kSkipped;
}

int check(const GpuOptions& options) {
  GpuRun run;
  run.options = options;
  // Kept open, so that the context is made once.
  const auto device = device::CudaDevice::open(options.library, options.device, true);
  const Code code = device.error().code();
  if (code == Code::UNSUPPORTED || code == Code::NOT_FOUND) return no_device(device.error());
  if (device)
    run.device_name = (*device)->name();
  else
    run.count("open the device", device.error());
  if (run.failed == 0) {
    run_device_suite(run);
    measure_map_costs(run);
    measure_pinning(run);
    measure_swap(run);
  }
  return finish(run);
}

}  // namespace
}  // namespace plexrl::gpu

int main(int argc, char** argv) {
  plexrl::gpu::GpuOptions options;
  return plexrl::gpu::parse(argc, argv, options) ? plexrl::gpu::check(options)
                                                 : plexrl::gpu::usage();
}
