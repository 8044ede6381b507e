// SPDX-License-Identifier: Apache-2.0
// Checks of a model directory in Hugging Face layout without reading its tensors: what
// plexrl-engine would refuse only when a job starts, and what it would not notice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/site_config.h"
#include "engine_torch/model_config.h"
#include "models/model_export.h"

namespace plexrl::cli {

struct ModelCheck {
  model::ModelConfig config;  // meaningful where config.json could be read
  std::string dtype;          // F32, BF16, F16, or "mixed"
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;            // of the weight files
  std::vector<std::string> problems;  // empty: good
  Code code = Code::CORRUPT;          // of the first problem
};

// config.json, tokenizer, headers of all weight files, and that these hold the model's tensors and
// no others. Reports everything.
[[nodiscard]] ModelCheck check_model_dir(const std::string& dir);
// The same, and against the registry's entry.
[[nodiscard]] ModelCheck check_model(const config::ModelEntry& entry);
// The tensors that a model of this configuration has.
[[nodiscard]] std::vector<model::TensorShape> tensors_of(const model::ModelConfig& config);
// CORRUPT with the first problem and how many more there are.
[[nodiscard]] Status status_of(const ModelCheck& check);

}  // namespace plexrl::cli
