// SPDX-License-Identifier: Apache-2.0
// A model directory in Hugging Face layout: config.json, model.safetensors (or the shards of
// model.safetensors.index.json) and tokenizer.json or plexrl_tokenizer.json. Names in it come from
// the site's registry, so the directory is trusted not to change while it is read, its contents are
// not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine_torch/arena_layout.h"
#include "engine_torch/bf16_gemm.h"

namespace plexrl::model {

struct ModelDir {
  std::string path;
  ModelConfig config;
  // JSON: what tokenizer_description.h says of tokenizer.json; without one plexrl_tokenizer.json as
  // it is; "" without either.
  std::string tokenizer;
};
[[nodiscard]] Result<ModelDir> open_model_dir(const std::string& path);

// Fills an arena of layout `full` (gaps zeroed); half precision is widened to float32.
[[nodiscard]] Status load_base_weights(const ModelDir& dir, const ArenaLayout& full,
                                       std::span<float> weights);
// The same, rounded to bfloat16. Memory beside it: one tensor in float32.
[[nodiscard]] Status load_base_weights16(const ModelDir& dir, const ArenaLayout& full,
                                         std::span<Bf16> weights);

// --init-model: a randomly initialised model from the text of a config.json: std
// 0.02 * sqrt(768 / hidden) * 0.7, o and down further divided by sqrt(2 * layers), norms 1.
// `tokenizer` is the text of plexrl_tokenizer.json. The directory must exist and be empty of these
// files (EXISTS).
[[nodiscard]] Status init_model_dir(const std::string& path, std::string_view config_json,
                                    std::string_view tokenizer, std::uint64_t seed);

}  // namespace plexrl::model
