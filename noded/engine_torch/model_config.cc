// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/model_config.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace plexrl::model {
namespace {

using nlohmann::json;

// Upper bounds of what is believable; they also keep every product below 2^63.
constexpr std::int64_t kMaxVocab = 1 << 20;
constexpr std::int64_t kMaxWidth = 1 << 17;
constexpr std::int64_t kMaxLayers = 512;
constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxPositions = 1 << 20;

bool present(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && !it->is_null();
}

Status read_int(const json& object, const char* key, std::int64_t most, std::int64_t* out) {
  if (!present(object, key))
    return error(Code::INVALID_ARGUMENT, "config.json: key '%s' is missing", key);
  const json& value = object.at(key);
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
    return error(Code::INVALID_ARGUMENT, "config.json: '%s' is not an integer", key);
  const auto number = value.get<std::int64_t>();
  if (number < 1 || number > most)
    return error(Code::INVALID_ARGUMENT, "config.json: '%s' is %lld, must be 1 to %lld", key,
                 static_cast<long long>(number), static_cast<long long>(most));
  *out = number;
  return {};
}

Status read_optional_int(const json& object, const char* key, std::int64_t most,
                         std::int64_t fallback, std::int64_t* out) {
  if (present(object, key)) return read_int(object, key, most, out);
  *out = fallback;
  return {};
}

Status read_real(const json& object, const char* key, double least, double most, double* out) {
  if (!present(object, key)) return {};
  const json& value = object.at(key);
  if (!value.is_number())
    return error(Code::INVALID_ARGUMENT, "config.json: '%s' is not a number", key);
  const double number = value.get<double>();
  if (!(number >= least && number <= most))
    return error(Code::INVALID_ARGUMENT, "config.json: '%s' is %g, must be %g to %g", key, number,
                 least, most);
  *out = number;
  return {};
}

Status read_flag(const json& object, const char* key, bool* out) {
  if (!present(object, key)) return {};
  if (!object.at(key).is_boolean())
    return error(Code::INVALID_ARGUMENT, "config.json: '%s' is not true or false", key);
  *out = object.at(key).get<bool>();
  return {};
}

Status unsupported(const char* key, const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return error(Code::UNSUPPORTED,
               "config.json: '%s' is %s, which this decoder cannot run (Llama, Qwen2 and Qwen3 in "
               "their plain form only)",
               key, text.c_str());
}

struct FamilyName {
  Family family;
  const char* type;
  const char* architecture;
};
constexpr FamilyName kFamilies[] = {{Family::kLlama, "llama", "LlamaForCausalLM"},
                                    {Family::kQwen2, "qwen2", "Qwen2ForCausalLM"},
                                    {Family::kQwen3, "qwen3", "Qwen3ForCausalLM"}};

const FamilyName& name_of(Family family) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies),
                       [family](const FamilyName& row) { return row.family == family; });
}

// By model_type and architectures: one of them is enough, both must agree.
Status read_family(const json& object, ModelConfig* config) {
  const bool typed = present(object, "model_type");
  const bool listed = present(object, "architectures");
  if (!typed && !listed)
    return error(Code::INVALID_ARGUMENT, "config.json: key 'model_type' is missing");
  const char* const key = typed ? "model_type" : "architectures";
  for (const FamilyName& row : kFamilies) {
    const json architecture = json::array({row.architecture});
    if (object.at(key) != (typed ? json(row.type) : architecture)) continue;
    if (listed && object.at("architectures") != architecture)
      return unsupported("architectures", object.at("architectures"));
    config->family = row.family;
    config->qkv_bias = row.family == Family::kQwen2;
    config->head_norms = row.family == Family::kQwen3;
    return {};
  }
  return unsupported(key, object.at(key));
}

// Every key whose value changes the mathematics, with the only value that we compute.
Status check_plain(const json& object, Family family) {
  struct Expected {
    const char* key;
    json value;
  };
  const Expected expected[] = {
      {"hidden_act", "silu"},
      {"mlp_bias", false},
      {"pretraining_tp", 1},
      {"partial_rotary_factor", 1.0},
      {"use_sliding_window", false},
      {"rope_interleaved", false},
      {"no_rope_layers", json::array()},
  };
  for (const Expected& row : expected)
    if (present(object, row.key) && object.at(row.key) != row.value)
      return unsupported(row.key, object.at(row.key));
  // Of Qwen2 the biases are not a key.
  if (family != Family::kQwen2 && present(object, "attention_bias") &&
      object.at("attention_bias") != json(false))
    return unsupported("attention_bias", object.at("attention_bias"));
  for (const char* key : {"quantization_config", "num_local_experts", "num_experts"})
    if (present(object, key)) return unsupported(key, object.at(key));
  // Qwen's files name a window even where use_sliding_window says that there is none.
  if (family == Family::kLlama && present(object, "sliding_window"))
    return unsupported("sliding_window", object.at("sliding_window"));
  if (present(object, "layer_types"))
    for (const json& type : object.at("layer_types"))
      if (type != json("full_attention")) return unsupported("layer_types", type);
  return {};
}

// `rope` is "rope_scaling", or "rope_parameters" of newer files.
Status read_rope_scaling(const json& rope, const char* key, RopeScaling* scaling) {
  if (!rope.is_object())
    return error(Code::INVALID_ARGUMENT, "config.json: '%s' is not an object", key);
  const char* const name = present(rope, "rope_type") ? "rope_type" : "type";
  const json type = present(rope, name) ? rope.at(name) : json("default");
  if (type == "default") return {};
  if (type != "linear" && type != "llama3") return unsupported(key, rope);
  scaling->kind = type == "linear" ? RopeScaling::Kind::kLinear : RopeScaling::Kind::kLlama3;
  if (!present(rope, "factor"))
    return error(Code::INVALID_ARGUMENT, "config.json: '%s' has no 'factor'", key);
  PLEXRL_TRY(read_real(rope, "factor", 1.0, 1e6, &scaling->factor));
  if (scaling->kind == RopeScaling::Kind::kLinear) return {};
  PLEXRL_TRY(read_real(rope, "low_freq_factor", 1e-6, 1e6, &scaling->low_freq_factor));
  PLEXRL_TRY(read_real(rope, "high_freq_factor", 1e-6, 1e6, &scaling->high_freq_factor));
  if (!(scaling->low_freq_factor < scaling->high_freq_factor))
    return error(Code::INVALID_ARGUMENT,
                 "config.json: '%s': low_freq_factor must be below high_freq_factor", key);
  return read_int(rope, "original_max_position_embeddings", kMaxPositions,
                  &scaling->original_positions);
}

// Newer files hold rope_theta and the scaling in an object "rope_parameters".
Status read_rope(const json& object, ModelConfig* config) {
  PLEXRL_TRY(read_real(object, "rope_theta", 1.0, 1e12, &config->rope_theta));
  if (present(object, "rope_scaling"))
    PLEXRL_TRY(read_rope_scaling(object.at("rope_scaling"), "rope_scaling", &config->rope_scaling));
  if (!present(object, "rope_parameters")) return {};
  const json& rope = object.at("rope_parameters");
  PLEXRL_TRY(read_rope_scaling(rope, "rope_parameters", &config->rope_scaling));
  return read_real(rope, "rope_theta", 1.0, 1e12, &config->rope_theta);
}

Status read_sizes(const json& object, ModelConfig* config) {
  PLEXRL_TRY(read_int(object, "vocab_size", kMaxVocab, &config->vocab_size));
  PLEXRL_TRY(read_int(object, "hidden_size", kMaxWidth, &config->hidden_size));
  PLEXRL_TRY(read_int(object, "num_hidden_layers", kMaxLayers, &config->layers));
  PLEXRL_TRY(read_int(object, "num_attention_heads", kMaxHeads, &config->heads));
  PLEXRL_TRY(read_int(object, "intermediate_size", kMaxWidth, &config->intermediate_size));
  PLEXRL_TRY(read_int(object, "max_position_embeddings", kMaxPositions, &config->max_positions));
  PLEXRL_TRY(read_optional_int(object, "num_key_value_heads", kMaxHeads, config->heads,
                               &config->kv_heads));
  // Hugging Face's default for Qwen3 does not depend on the other sizes.
  const std::int64_t usual =
      config->family == Family::kQwen3 ? 128 : config->hidden_size / config->heads;
  return read_optional_int(object, "head_dim", kMaxHeadDim, usual, &config->head_dim);
}

Status check_sizes(const json& object, const ModelConfig& config) {
  if (!present(object, "head_dim") && config.family != Family::kQwen3 &&
      config.hidden_size % config.heads != 0)
    return error(Code::INVALID_ARGUMENT,
                 "config.json: 'hidden_size' is no multiple of 'num_attention_heads' and there is "
                 "no 'head_dim'");
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim)
    return error(Code::INVALID_ARGUMENT, "config.json: 'head_dim' is %lld, must be even, 2 to %lld",
                 static_cast<long long>(config.head_dim), static_cast<long long>(kMaxHeadDim));
  if (config.heads % config.kv_heads != 0)
    return error(Code::INVALID_ARGUMENT,
                 "config.json: 'num_key_value_heads' does not divide 'num_attention_heads'");
  return {};
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return error(Code::INVALID_ARGUMENT, "config.json: not JSON");
  if (!object.is_object()) return error(Code::INVALID_ARGUMENT, "config.json: not a JSON object");
  ModelConfig config;
  PLEXRL_TRY(read_family(object, &config));
  PLEXRL_TRY(check_plain(object, config.family));
  PLEXRL_TRY(read_sizes(object, &config));
  PLEXRL_TRY(check_sizes(object, config));
  PLEXRL_TRY(read_real(object, "rms_norm_eps", 1e-12, 1.0, &config.rms_norm_eps));
  PLEXRL_TRY(read_rope(object, &config));
  PLEXRL_TRY(read_flag(object, "tie_word_embeddings", &config.tied_head));
  return config;
}

std::string format_model_config(const ModelConfig& config) {
  const FamilyName& family = name_of(config.family);
  json object = {{"architectures", {family.architecture}},
                 {"model_type", family.type},
                 {"hidden_act", "silu"},
                 {"vocab_size", config.vocab_size},
                 {"hidden_size", config.hidden_size},
                 {"num_hidden_layers", config.layers},
                 {"num_attention_heads", config.heads},
                 {"num_key_value_heads", config.kv_heads},
                 {"head_dim", config.head_dim},
                 {"intermediate_size", config.intermediate_size},
                 {"max_position_embeddings", config.max_positions},
                 {"rms_norm_eps", config.rms_norm_eps},
                 {"rope_theta", config.rope_theta},
                 {"tie_word_embeddings", config.tied_head},
                 {"torch_dtype", "float32"}};
  if (config.family != Family::kQwen2) object["attention_bias"] = false;
  if (config.family == Family::kLlama) object["mlp_bias"] = false;
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::kLinear)
    object["rope_scaling"] = {{"rope_type", "linear"}, {"factor", scaling.factor}};
  if (scaling.kind == RopeScaling::Kind::kLlama3)
    object["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", scaling.factor},
                              {"low_freq_factor", scaling.low_freq_factor},
                              {"high_freq_factor", scaling.high_freq_factor},
                              {"original_max_position_embeddings", scaling.original_positions}};
  return object.dump(2) + "\n";
}

}  // namespace plexrl::model
