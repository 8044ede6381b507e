// SPDX-License-Identifier: Apache-2.0
// plexrl-engine: runs the models of one base for plexrld. Started by plexrld; outlives it.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.h"
#include "base/log.h"
#include "config.h"
#include "device/cuda_backend.h"
#include "engine_torch/activation_arena.h"
#include "engine_torch/arena_math.h"
#include "engine_torch/base_model.h"
#include "engine_torch/blas_check.h"
#include "engine_torch/decode_bench.h"
#include "engine_torch/engine_options.h"
#include "engine_torch/engine_server.h"
#include "engine_torch/model_config.h"

namespace plexrl::worker {
namespace {

constexpr int kListenerFd = 3;
constexpr std::size_t kBenchActivationBytes = std::size_t{256} << 20;
// The characters of the built-in environments and of the examples.
constexpr const char* kAlphabet = "0123456789+=>;ab?";

Result<UniqueFd> take_listener() {
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(kListenerFd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 ||
      listening == 0)
    return error(Code::INVALID_ARGUMENT,
                 "descriptor 3 is not a listening socket; this program is started by plexrld");
  ::fcntl(kListenerFd, F_SETFD, FD_CLOEXEC);
  return UniqueFd(kListenerFd);
}

Result<std::string> read_text(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || !text) return errno_error(Code::IO, errno, "read '%s'", path.c_str());
  return text.str();
}

Result<std::string> tokenizer_text(const EngineOptions& options, std::string_view config_json) {
  if (!options.tokenizer_path.empty()) return read_text(options.tokenizer_path);
  PLEXRL_ASSIGN(const auto config, model::parse_model_config(config_json));
  const nlohmann::json tokenizer = {
      {"type", "char"}, {"alphabet", kAlphabet}, {"vocab_size", config.vocab_size}};
  return tokenizer.dump();
}

Status init_model(const EngineOptions& options) {
  PLEXRL_ASSIGN(const auto config, read_text(options.config_path));
  PLEXRL_ASSIGN(const auto tokenizer, tokenizer_text(options, config));
  if (::mkdir(options.init_dir.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error(Code::IO, errno, "make directory '%s'", options.init_dir.c_str());
  return model::init_model_dir(options.init_dir, config, tokenizer, options.seed);
}

BackendFactory backend_of(const model::ModelDevice& device) {
  if (device.cuda < 0) return device::open_cpu_backend;
  return [number = device.cuda](const UniqueFd& /*pool*/, std::size_t chunk_bytes,
                                std::size_t chunk_count) {
    device::CudaOptions options;
    options.device = number;
    options.chunk_bytes = chunk_bytes;
    options.chunk_count = chunk_count;
    return device::open_cuda_backend(options);
  };
}

Status serve(const EngineOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  PLEXRL_ASSIGN(auto listener, take_listener());
  PLEXRL_ASSIGN(const auto device, model::open_model_device(options.device));
  if (const Status blas = check_blas(); device.cuda < 0 && !blas.ok())
    PLEXRL_LOG(kWarning, "%s", blas.to_string().c_str());
  PLEXRL_ASSIGN(auto arena, model::ActivationArena::create(options.activation_bytes));
  PLEXRL_TRY(model::install_activation_arena(std::move(arena), options.threads));
  BaseModel base(options.base_dir, options.mode, device, options.type);
  EngineServer server({options.id, options.base_name, options.mode}, base, backend_of(device),
                      std::move(listener));
  return server.serve();
}

nlohmann::json row_of(const model::DecodeSpeed& speed) {
  return {{"rows", speed.rows},
          {"adapters", speed.adapters},
          {"rounds", speed.rounds},
          {"bytes", speed.bytes},
          {"tokens_per_s", speed.tokens_per_s},
          {"roofline_tokens_per_s", speed.roofline_tokens_per_s},
          {"roofline_share", speed.roofline_share}};
}

Status measure_decoding(const EngineOptions& options) {
  PLEXRL_ASSIGN(auto arena, model::ActivationArena::create(kBenchActivationBytes));
  PLEXRL_TRY(model::install_activation_arena(std::move(arena), options.threads));
  model::DecodeBenchOptions bench;
  bench.base_dir = options.base_dir;
  bench.type = options.type;
  bench.time = Duration{static_cast<std::int64_t>(options.milliseconds) * kMillisecond.ns};
  PLEXRL_ASSIGN(const auto speeds, model::bench_decode(bench));
  nlohmann::json rows = nlohmann::json::array();
  for (const model::DecodeSpeed& speed : speeds) rows.push_back(row_of(speed));
  std::ofstream file(options.bench_path);
  file << rows.dump();
  file.close();
  if (!file) return errno_error(Code::IO, errno, "write '%s'", options.bench_path.c_str());
  return {};
}

int report(const Status& status) {
  if (status.ok()) return 0;
  PLEXRL_LOG(kError, "%s", status.to_string().c_str());
  return status.code() == Code::INVALID_ARGUMENT ? 2 : 1;
}

int run(int argc, char** argv) {
  set_log_name("plexrl-engine");
  const auto options = parse_engine_options(argc, argv);
  if (!options) {
    report(options.error());
    std::fputs(engine_usage(), stderr);
    return 2;
  }
  switch (options->command) {
    case EngineOptions::Command::kHelp:
      return std::fputs(engine_usage(), stdout) < 0 ? 1 : 0;
    case EngineOptions::Command::kVersion:
      return std::puts("plexrl-engine " PACKAGE_VERSION) < 0;
    case EngineOptions::Command::kInitModel:
      return report(init_model(*options));
    case EngineOptions::Command::kBenchDecode:
      return report(measure_decoding(*options));
    case EngineOptions::Command::kServe:
      break;
  }
  return report(serve(*options));
}

}  // namespace
}  // namespace plexrl::worker

int main(int argc, char** argv) { return plexrl::worker::run(argc, argv); }
