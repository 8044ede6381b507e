// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_model.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/child_program.h"

namespace plexrl::cli {
namespace {

// The demo's model, with room for the rows.
constexpr ModelShape kTiny = {"tiny", 128, 3, 4, 2, 384, 32, 256};

std::string beside_this_program(const std::string& name) {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  for (const auto& folder : {self.parent_path(), self.parent_path().parent_path()})
    if (const auto found = folder / "models" / name; std::filesystem::exists(found, failure))
      return found.string();
  return {};
}

std::string config_of(const ModelShape& s) {
  return nlohmann::json{{"architectures", {"LlamaForCausalLM"}},
                        {"model_type", "llama"},
                        {"hidden_act", "silu"},
                        {"hidden_size", s.hidden},
                        {"intermediate_size", s.intermediate},
                        {"num_hidden_layers", s.layers},
                        {"num_attention_heads", s.heads},
                        {"num_key_value_heads", s.kv_heads},
                        {"head_dim", s.hidden / s.heads},
                        {"vocab_size", s.vocabulary},
                        {"max_position_embeddings", s.positions},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 10000.0},
                        {"tie_word_embeddings", true},
                        {"attention_bias", false},
                        {"mlp_bias", false},
                        {"torch_dtype", "float32"}}
      .dump();
}

}  // namespace

Status make_model(const std::string& engine, const std::string& directory,
                  const ModelShape& shape) {
  const std::string config = directory + "/" + shape.name + ".json";
  std::ofstream(config) << config_of(shape);
  return run_program({engine, "--init-model", directory + "/" + shape.name, "--config", config,
                      "--seed", "1"},
                     directory + "/log")
      .within(std::string("make a model of ") + shape.name);
}

std::uint64_t ModelShape::parameters() const noexcept {
  const std::uint64_t attention = 2ULL * hidden * hidden + 2ULL * hidden * kv_size();
  const std::uint64_t layer = attention + 3ULL * hidden * intermediate + 2ULL * hidden;
  return std::uint64_t{vocabulary} * hidden + layers * layer + hidden;
}

std::uint64_t ModelShape::lora_parameters(std::uint32_t rank) const noexcept {
  const std::uint64_t attention = 2ULL * (hidden + hidden) + 2ULL * (hidden + kv_size());
  return std::uint64_t{rank} * layers * (attention + 3ULL * (hidden + intermediate));
}

std::string site_model(const ModelShape& shape, const std::string& name, const std::string& path) {
  return "  - {name: " + name + ", path: " + path +
         ", parameters: " + std::to_string(shape.parameters()) +
         ", hidden_size: " + std::to_string(shape.hidden) +
         ",\n     layers: " + std::to_string(shape.layers) +
         ", intermediate_size: " + std::to_string(shape.intermediate) +
         ", kv_size: " + std::to_string(shape.kv_size()) + "}\n";
}

Result<BenchModel> find_bench_model(const std::string& word, const std::string& engine,
                                    const std::string& folder) {
  if (word == kTiny.name) {
    PLEXRL_TRY(make_model(engine, folder, kTiny));
    return BenchModel{word, folder + "/" + kTiny.name};
  }
  if (word.find('/') != std::string::npos) {
    const std::filesystem::path path = std::filesystem::path(word).lexically_normal();
    return BenchModel{(path.has_filename() ? path : path.parent_path()).filename().string(), word};
  }
  if (word == kRealModel)
    if (const std::string found = beside_this_program(word); !found.empty())
      return BenchModel{word, found};
  return error(Code::NOT_FOUND,
               "no model '%s' beside this program: run `make models` for %s, or give a directory "
               "with a '/' in its name",
               word.c_str(), kRealModel);
}

Result<ModelShape> shape_of(const BenchModel& model) {
  std::ifstream file(model.directory + "/config.json");
  const auto config = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  Status missing;
  const auto number = [&](const char* key) -> std::uint32_t {
    const auto found = config.is_object() ? config.find(key) : config.end();
    if (found != config.end() && found->is_number_unsigned() && found->get<std::uint64_t>() > 0)
      return found->get<std::uint32_t>();
    if (missing.ok())
      missing =
          error(Code::INVALID_ARGUMENT, "'%s/config.json' has no %s", model.directory.c_str(), key);
    return 1;
  };
  const ModelShape shape = {"",
                            number("hidden_size"),
                            number("num_hidden_layers"),
                            number("num_attention_heads"),
                            number("num_key_value_heads"),
                            number("intermediate_size"),
                            number("vocab_size"),
                            number("max_position_embeddings")};
  if (!missing.ok()) return missing;
  return shape;
}

}  // namespace plexrl::cli
