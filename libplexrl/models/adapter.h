// SPDX-License-Identifier: Apache-2.0
// A LoRA adapter in files: a PEFT directory (adapter_config.json, adapter_model.safetensors) or the
// file of a save of one (`plexrl train --save`). The weight of a module with it is
// W + scale * B A (Hu et al. 2021). Any thread; blocks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "models/safetensors.h"

namespace plexrl::model {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
inline constexpr const char* kAdapterPrefix = "base_model.model.";

class Adapter {
 public:
  struct Module {
    std::int64_t rows = 0;  // of the module's weight: out
    std::int64_t cols = 0;  // in
  };

  // UNSUPPORTED names what we would compute wrongly (DoRA, biases, ranks by module, ...); CORRUPT:
  // the tensors contradict each other or the configuration.
  [[nodiscard]] static Result<Adapter> open(const std::string& path);

  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] double alpha() const noexcept { return alpha_; }
  [[nodiscard]] float scale() const noexcept { return scale_; }
  // By the name of the module in the base: model.layers.0.self_attn.q_proj.
  [[nodiscard]] const std::map<std::string, Module>& modules() const noexcept { return modules_; }
  [[nodiscard]] const SafetensorsFile& file() const noexcept { return file_; }

  // Adds scale * B A to the module's weight, in float32. The module must be one of modules(), and
  // weight of rows * cols.
  [[nodiscard]] Status add_to(const std::string& module, std::span<float> weight) const;

 private:
  [[nodiscard]] Status read_config(const std::string& path);
  [[nodiscard]] Status read_metadata();
  [[nodiscard]] Status find_modules();
  UniqueFd fd_;
  SafetensorsFile file_;
  std::map<std::string, Module> modules_;
  std::uint32_t rank_ = 0;
  double alpha_ = 0;
  float scale_ = 0;
};

}  // namespace plexrl::model
