// SPDX-License-Identifier: Apache-2.0
// ModelConfig: the shape of a Llama-style decoder (Llama, SmolLM2, Qwen2, Qwen3), read from Hugging
// Face's config.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace plexrl::model {

enum class Family : std::uint8_t { kLlama, kQwen2, kQwen3 };  // model_type

// How rotary frequencies are changed for longer contexts. kLinear: all are divided by `factor`.
// kLlama3: those whose wavelength is above original_positions / low_freq_factor are, those below
// original_positions / high_freq_factor are not, between the two by linear blending (Llama 3.1).
struct RopeScaling {
  enum class Kind : std::uint8_t { kNone, kLinear, kLlama3 };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_positions = 0;
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

struct ModelConfig {
  Family family = Family::kLlama;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;  // even; explicit in the file or hidden_size / heads
  std::int64_t intermediate_size = 0;
  std::int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tied_head = false;   // lm_head is the embedding
  bool qkv_bias = false;    // q, k and v projections have biases
  bool head_norms = false;  // each head of q and k is normed before it is rotated

  [[nodiscard]] std::int64_t query_size() const noexcept { return heads * head_dim; }
  [[nodiscard]] std::int64_t kv_size() const noexcept { return kv_heads * head_dim; }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Parses config.json. The text may be hostile: every number is bounded before use.
// UNSUPPORTED: a well-formed model that this decoder cannot run (names the key).
// INVALID_ARGUMENT: not JSON, a key missing, of the wrong type or out of bounds (names the key).
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view json);

// The inverse, as a configuration of its family in float32.
[[nodiscard]] std::string format_model_config(const ModelConfig& config);

}  // namespace plexrl::model
