// SPDX-License-Identifier: Apache-2.0
// Command line of plexrl-engine: serve a base for plexrld, write a randomly initialised model, or
// measure how fast a base decodes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine_generated.h"
#include "engine_torch/arena_layout.h"

namespace plexrl::worker {

struct EngineOptions {
  enum class Command : std::uint8_t { kServe, kInitModel, kBenchDecode, kHelp, kVersion };
  Command command = Command::kServe;

  std::uint64_t id = 0;
  std::string base_dir;
  std::string base_name;
  wire::TrainMode mode = wire::TrainMode::None;
  int threads = 1;
  std::uint64_t activation_bytes = 0;
  std::string device = "cpu";                            // or cuda:N
  model::WeightType type = model::WeightType::kFloat32;  // --dtype

  std::string init_dir;        // --init-model
  std::string config_path;     // a config.json
  std::string tokenizer_path;  // empty: characters of the built-in environments
  std::uint64_t seed = 0;

  std::string bench_path;             // --bench-decode: where its rows go
  std::uint64_t milliseconds = 1000;  // of each measurement
};

// INVALID_ARGUMENT names the option.
[[nodiscard]] Result<EngineOptions> parse_engine_options(int argc, char* const* argv);
[[nodiscard]] const char* engine_usage() noexcept;

}  // namespace plexrl::worker
