// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/engine_options.h"

#include <charconv>
#include <map>
#include <string_view>
#include <utility>

namespace plexrl::worker {
namespace {

Result<std::uint64_t> number(const std::string& option, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size())
    return error(Code::INVALID_ARGUMENT, "%s: '%s' is not a number", option.c_str(), text.c_str());
  return value;
}

using Setter = Status (*)(EngineOptions& options, const std::string& name, const std::string& text);

template <std::string EngineOptions::*Member>
Status set_text(EngineOptions& options, const std::string& /*name*/, const std::string& text) {
  options.*Member = text;
  return {};
}

template <std::uint64_t EngineOptions::*Member>
Status set_number(EngineOptions& options, const std::string& name, const std::string& text) {
  PLEXRL_ASSIGN(options.*Member, number(name, text));
  return {};
}

Status set_threads(EngineOptions& options, const std::string& name, const std::string& text) {
  PLEXRL_ASSIGN(const auto threads, number(name, text));
  if (threads < 1 || threads > 1024)
    return error(Code::INVALID_ARGUMENT, "--threads: %s, must be 1 to 1024", text.c_str());
  options.threads = static_cast<int>(threads);
  return {};
}

Status set_mode(EngineOptions& options, const std::string& /*name*/, const std::string& text) {
  if (text != "lora" && text != "full")
    return error(Code::INVALID_ARGUMENT, "--mode: '%s', must be lora or full", text.c_str());
  options.mode = text == "lora" ? wire::TrainMode::Lora : wire::TrainMode::Full;
  return {};
}

Status set_dtype(EngineOptions& options, const std::string& /*name*/, const std::string& text) {
  if (text != "float32" && text != "bfloat16")
    return error(Code::INVALID_ARGUMENT, "--dtype: '%s', must be float32 or bfloat16",
                 text.c_str());
  options.type = text == "float32" ? model::WeightType::kFloat32 : model::WeightType::kBFloat16;
  return {};
}

Status set_init(EngineOptions& options, const std::string& /*name*/, const std::string& text) {
  options.command = EngineOptions::Command::kInitModel;
  options.init_dir = text;
  return {};
}

Status set_bench(EngineOptions& options, const std::string& /*name*/, const std::string& text) {
  options.command = EngineOptions::Command::kBenchDecode;
  options.bench_path = text;
  return {};
}

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> table = {
      {"--id", set_number<&EngineOptions::id>},
      {"--base-dir", set_text<&EngineOptions::base_dir>},
      {"--base-name", set_text<&EngineOptions::base_name>},
      {"--mode", set_mode},
      {"--threads", set_threads},
      {"--activation-bytes", set_number<&EngineOptions::activation_bytes>},
      {"--device", set_text<&EngineOptions::device>},
      {"--dtype", set_dtype},
      {"--init-model", set_init},
      {"--config", set_text<&EngineOptions::config_path>},
      {"--tokenizer", set_text<&EngineOptions::tokenizer_path>},
      {"--seed", set_number<&EngineOptions::seed>},
      {"--bench-decode", set_bench},
      {"--milliseconds", set_number<&EngineOptions::milliseconds>},
  };
  return table;
}

Status check(const EngineOptions& options) {
  const auto need = [](bool given, const char* name) {
    return given ? Status() : error(Code::INVALID_ARGUMENT, "%s is missing", name);
  };
  if (options.command == EngineOptions::Command::kInitModel)
    return need(!options.config_path.empty(), "--config");
  if (options.command == EngineOptions::Command::kBenchDecode) {
    if (options.milliseconds > 3'600'000)
      return error(Code::INVALID_ARGUMENT, "--milliseconds: at most 3600000");
    return need(!options.base_dir.empty(), "--base-dir");
  }
  PLEXRL_TRY(need(options.id != 0, "--id"));
  PLEXRL_TRY(need(!options.base_dir.empty(), "--base-dir"));
  PLEXRL_TRY(need(!options.base_name.empty(), "--base-name"));
  PLEXRL_TRY(need(options.mode != wire::TrainMode::None, "--mode"));
  return need(options.activation_bytes != 0, "--activation-bytes");
}

}  // namespace

Result<EngineOptions> parse_engine_options(int argc, char* const* argv) {
  EngineOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "--version") {
      options.command =
          name == "--help" ? EngineOptions::Command::kHelp : EngineOptions::Command::kVersion;
      return options;
    }
    const auto setter = setters().find(name);
    if (setter == setters().end())
      return error(Code::INVALID_ARGUMENT, "unknown option '%s'", name.c_str());
    if (++i == argc) return error(Code::INVALID_ARGUMENT, "%s needs a value", name.c_str());
    PLEXRL_TRY(setter->second(options, name, argv[i]));
  }
  PLEXRL_TRY(check(options));
  return options;
}

const char* engine_usage() noexcept {
  return "plexrl-engine --id N --base-dir DIR --base-name NAME --mode lora|full\n"
         "              --activation-bytes N [--threads N] [--device cpu|cuda:N]\n"
         "              [--dtype float32|bfloat16]\n"
         "    serves plexrld on the listening socket that is descriptor 3\n"
         "plexrl-engine --init-model DIR --config FILE [--tokenizer FILE] [--seed N]\n"
         "    writes a randomly initialised model of the shape in FILE (a config.json)\n"
         "plexrl-engine --bench-decode FILE --base-dir DIR [--dtype float32|bfloat16]\n"
         "              [--threads N] [--milliseconds N]\n"
         "    measures decoding, in turns with a plain read of the same bytes\n";
}

}  // namespace plexrl::worker
