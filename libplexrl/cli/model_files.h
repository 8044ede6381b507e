// SPDX-License-Identifier: Apache-2.0
// Checks of a model directory in Hugging Face layout without reading its tensors: what
// plexrl-engine would refuse only when a job starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/site_config.h"

namespace plexrl::cli {

struct SafetensorsFacts {
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of the file
};

// Header of one safetensors file: lengths, dtypes, shapes and offsets agree with each other and
// with the file's size. CORRUPT names the tensor; NOT_FOUND, IO for the file.
[[nodiscard]] Result<SafetensorsFacts> check_safetensors(const std::string& path);

struct ModelCheck {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> problems;  // empty: good
};

// config.json, tokenizer and all weight files, against the registry's entry. Reports everything.
[[nodiscard]] ModelCheck check_model(const config::ModelEntry& entry);

}  // namespace plexrl::cli
