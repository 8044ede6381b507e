// SPDX-License-Identifier: Apache-2.0
// A small model directory in Hugging Face layout, and an adapter of it, for tests.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "engine_torch/arena_layout.h"
#include "models/half.h"
#include "models/safetensors.h"

namespace plexrl::model {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "plexrl-model-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_bytes(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}
inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json small_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"vocab_size", 6},
          {"hidden_size", 8},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"intermediate_size", 12},
          {"max_position_embeddings", 32},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", true},
          {"torch_dtype", "float32"}};
}

using ModelTensor = TensorSlot;
inline std::vector<ModelTensor> base_tensors(const ModelConfig& config) {
  return make_model_layout(config, wire::TrainMode::None, 0)->full.slots;
}
inline std::vector<ModelTensor> adapter_tensors(const ModelConfig& config, std::uint32_t rank) {
  return make_model_layout(config, wire::TrainMode::Lora, rank)->trainable.slots;
}

using Weights = std::map<std::string, std::vector<float>>;

// Numbers that bfloat16 and float16 hold exactly.
inline std::vector<float> small_numbers(std::uint64_t count, std::uint64_t seed) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    values.push_back(static_cast<float>(static_cast<int>(seed >> 57) - 64) / 64.0F);
  }
  return values;
}

inline void write_tensor_file(const std::string& path, const std::vector<ModelTensor>& tensors,
                              const Weights& weights, DType dtype,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<TensorToWrite> list;
  std::vector<std::vector<std::uint16_t>> narrow;
  narrow.reserve(tensors.size());
  for (const ModelTensor& tensor : tensors) {
    const auto& values = weights.at(tensor.name);
    const void* data = values.data();
    if (dtype != DType::kF32) {
      narrow.emplace_back();
      for (const float value : values)
        narrow.back().push_back(dtype == DType::kF16 ? to_half(value) : to_bfloat16(value));
      data = narrow.back().data();
    }
    list.push_back({tensor.name, dtype, tensor.shape(), data, values.size() * dtype_bytes(dtype)});
  }
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  ASSERT_TRUE(write_safetensors(fd.get(), list, metadata).has_value());
}

inline Weights numbers_for(const std::vector<ModelTensor>& tensors, std::uint64_t seed) {
  Weights weights;
  for (const ModelTensor& tensor : tensors)
    weights[tensor.name] = small_numbers(tensor.elements(), ++seed);
  return weights;
}

// Makes the directory `dir`; two shards instead of one file where `shards`.
inline Weights write_small_model(const std::string& dir, DType dtype = DType::kF32,
                                 bool shards = false) {
  std::filesystem::create_directory(dir);
  const auto tensors = base_tensors(*parse_model_config(small_config().dump()));
  const Weights weights = numbers_for(tensors, 1);
  write_bytes(dir + "/config.json", small_config().dump());
  write_bytes(dir + "/plexrl_tokenizer.json",
              R"({"type":"char","alphabet":"abcd","vocab_size":6})");
  if (!shards) {
    write_tensor_file(dir + "/model.safetensors", tensors, weights, dtype, {{"format", "pt"}});
    return weights;
  }
  nlohmann::json map;
  const std::size_t half = tensors.size() / 2;
  const std::string names[] = {"model-00001-of-00002.safetensors",
                               "model-00002-of-00002.safetensors"};
  for (std::size_t i = 0; i < tensors.size(); ++i) map[tensors[i].name] = names[i < half ? 0 : 1];
  const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(half);
  write_tensor_file(dir + "/" + names[0], {tensors.begin(), middle}, weights, dtype, {});
  write_tensor_file(dir + "/" + names[1], {middle, tensors.end()}, weights, dtype, {});
  write_bytes(dir + "/model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  return weights;
}

// All tensors of a file, as floats.
inline Weights read_weights(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto file = SafetensorsFile::open(fd.get());
  EXPECT_TRUE(file.has_value()) << file.status().to_string();
  Weights weights;
  for (const auto& [name, tensor] : file->tensors()) {
    weights[name].resize(tensor.bytes / dtype_bytes(tensor.dtype));
    EXPECT_TRUE(file->read_f32(name, tensor.shape, weights[name]).ok()) << name;
  }
  return weights;
}

}  // namespace plexrl::model
