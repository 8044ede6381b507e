// SPDX-License-Identifier: Apache-2.0
// gpu_grpo: the engine's own code trains models on a device of LibTorch and swaps them. Rows as one
// JSON array on stdout, progress on stderr. Exit status 0 all passed, 1 something failed, 2 usage,
// 77 no such device: everything was skipped.
#include <sys/statvfs.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "device/cuda_device.h"
#include "engine_torch/activation_arena.h"
#include "engine_torch/arena_math.h"
#include "gpu/grpo_run.h"
#include "gpu/raw_driver.h"

namespace plexrl::gpu {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

struct Options {
  GpuOptions gpu;
  std::string device = "0";  // number of a CUDA device, or cpu
  bool over_driver = false;  // with cpu: memory of the driver named by --library all the same
  int threads = 0;           // 0: all
  bool large = true;
  std::string scratch;
};

int usage() {
  std::fputs(
      "gpu_grpo [--device N|cpu] [--library FILE] [--quick] [--no-large] [--threads N] "
      "[--scratch DIR]\n",
      stderr);
  return 2;
}

bool parse(int argc, char** argv, Options& options) {
  const char* const scratch = std::getenv("TMPDIR");
  options.scratch = scratch != nullptr ? scratch : "/tmp";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      options.gpu.quick = true;
    } else if (word == "--no-large") {
      options.large = false;
    } else if (i + 1 < argc && word == "--device") {
      options.device = argv[++i];
    } else if (i + 1 < argc && word == "--library") {
      options.gpu.library = argv[++i];
      options.over_driver = true;
    } else if (i + 1 < argc && word == "--threads") {
      options.threads = std::atoi(argv[++i]);
    } else if (i + 1 < argc && word == "--scratch") {
      options.scratch = argv[++i];
    } else {
      return false;
    }
  }
  return true;
}

model::ModelConfig shape(std::int64_t hidden, std::int64_t layers, std::int64_t heads,
                         std::int64_t kv_heads, std::int64_t intermediate) {
  model::ModelConfig config;
  config.vocab_size = 32;
  config.hidden_size = hidden;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = hidden / heads;
  config.intermediate_size = intermediate;
  config.max_positions = 64;
  config.tied_head = true;
  return config;
}

// On the CPU the driver can only be one over host memory, as the tests have it: there plain ATen
// computes on what it maps.
void set_device(GrpoRun& what, const Options& options, const model::ModelDevice& device) {
  what.device = device;
  what.driver = device.cuda;
  if (device.cuda >= 0 || !options.over_driver) return;
  what.driver = 0;
  what.device.math = model::ModelDevice::Math::kAten;
}

// A few seconds on one processor: the warm start is short and the reward counts single digits.
GrpoRun quick_run() {
  GrpoRun what;
  what.name = "quick";
  what.config = shape(64, 2, 4, 2, 128);
  what.plan.sft_steps = 30;
  what.plan.sft_batch = 64;
  what.plan.sft_rate = 5e-3;
  what.plan.steps = 12;
  what.plan.prompts = 16;
  what.plan.rate = 2e-3;
  what.plan.partial_reward = true;
  what.chunk_bytes = 2 * kMiB;
  what.reward_must_rise = true;
  return what;
}

// The model and the rates of the documented training example.
GrpoRun small_run() {
  GrpoRun what;
  what.name = "small";
  what.config = shape(128, 3, 4, 2, 384);
  what.plan.sft_steps = 40;
  what.plan.steps = 20;
  what.chunk_bytes = 2 * kMiB;
  what.reward_must_rise = true;
  return what;
}

// Large enough that copies take time; too short to learn.
GrpoRun large_run() {
  GrpoRun what;
  what.name = "large";
  what.config = shape(2048, 16, 32, 8, 8192);
  what.plan.steps = 4;
  what.plan.prompts = 8;
  what.plan.rate = 1e-5;
  what.plan.partial_reward = true;
  what.chunk_bytes = 64 * kMiB;
  return what;
}

std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::uint64_t kib = 0;
  while (file >> word)
    if (word == "MemAvailable:" && file >> kib) return kib << 10;
  return 0;
}

// Why the large run is not possible here, "" when it is. Three states of 16 GiB, a fourth on the
// way, the file; on the device weights, optimizer, gradients, the sampler's copy and activations.
std::string too_small(const Options& options) {
  if (!options.large) return "not asked for";
  if (options.device == "cpu") return "a CPU would take too long";
  if (available_bytes() < 72 * kGiB) return "less than 72 GiB of memory are available";
  struct statvfs disk {};
  if (::statvfs(options.scratch.c_str(), &disk) != 0 ||
      std::uint64_t{disk.f_bavail} * disk.f_frsize < 6 * kGiB)
    return "less than 6 GiB are free in " + options.scratch;
  return "";
}

Status prepare(Options& options, GpuRun& run, model::ModelDevice& device) {
  set_log_name("gpu_grpo");
  run.options = options.gpu;
  if (options.threads <= 0)
    options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  run.device_name = "cpu";
  const std::string text = options.device == "cpu" ? "cpu" : "cuda:" + options.device;
  PLEXRL_ASSIGN(device, model::open_model_device(text));
  if (device.cuda >= 0) {
    PLEXRL_ASSIGN(const auto opened,
                  device::CudaDevice::open(options.gpu.library, device.cuda, false));
    run.device_name = opened->name();
  }
  PLEXRL_ASSIGN(auto arena,
                model::ActivationArena::create((options.gpu.quick ? 256 : 2048) * kMiB));
  return model::install_activation_arena(std::move(arena), options.threads);
}

int check(Options options) {
  GpuRun run;
  model::ModelDevice device;
  const Status ready = prepare(options, run, device);
  if (ready.code() == Code::UNSUPPORTED || ready.code() == Code::NOT_FOUND) {
    std::fprintf(stderr, "%s\nno device: %d checks skipped\n", ready.to_string().c_str(),
                 2 * kGrpoChecks);
    std::puts("[]");
    return 77;
  }
  if (!ready.ok()) run.count("open the device", ready);
  GrpoRun first = options.gpu.quick ? quick_run() : small_run();
  set_device(first, options, device);
  if (ready.ok()) measure_grpo(run, first, options.scratch);
  const std::string why = options.gpu.quick ? "--quick" : too_small(options);
  GrpoRun second = large_run();
  set_device(second, options, device);
  if (ready.ok() && why.empty()) measure_grpo(run, second, options.scratch);
  if (!why.empty()) run.skip("grpo large", why);
  return finish(run);
}

}  // namespace
}  // namespace plexrl::gpu

int main(int argc, char** argv) {
  plexrl::gpu::Options options;
  return plexrl::gpu::parse(argc, argv, options) ? plexrl::gpu::check(options)
                                                 : plexrl::gpu::usage();
}
