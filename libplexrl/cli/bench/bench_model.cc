// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_model.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_daemon.h"

namespace plexrl::cli {
namespace {

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

}  // namespace plexrl::cli
