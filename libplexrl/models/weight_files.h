// SPDX-License-Identifier: Apache-2.0
// The weights of a model directory: model.safetensors or, without it, the shards that
// model.safetensors.index.json names (Hugging Face's order). Any thread; blocks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "models/safetensors.h"

namespace plexrl::model {

inline constexpr const char* kWeightFile = "model.safetensors";
inline constexpr const char* kWeightIndex = "model.safetensors.index.json";

// Plain file names, each once, in alphabetical order. NOT_FOUND: neither file is there; CORRUPT,
// TOO_LARGE for an index that is not one.
[[nodiscard]] Result<std::vector<std::string>> weight_file_names(const std::string& dir);

class WeightFiles {
 public:
  // All headers are read and checked. Errors begin with the file's name; CORRUPT also for a tensor
  // that is in two files.
  [[nodiscard]] static Result<WeightFiles> open(const std::string& dir);

  // NOT_FOUND names the tensor.
  [[nodiscard]] Result<const SafetensorsFile*> file_of(const std::string& tensor) const;
  [[nodiscard]] const std::vector<SafetensorsFile>& files() const noexcept { return files_; }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  std::vector<std::string> names_;
  std::vector<UniqueFd> fds_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> where_;
};

}  // namespace plexrl::model
