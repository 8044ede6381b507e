// SPDX-License-Identifier: Apache-2.0
#include "models/adapter.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/text_file.h"

namespace plexrl::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxConfig = 1 << 20;
constexpr std::int64_t kMaxRank = 4096;
constexpr const char* kA = ".lora_A.weight";
constexpr const char* kB = ".lora_B.weight";
constexpr const char* kOptimizer = "plexrl.";  // moments and step of a checkpoint

// Keys that change the arithmetic, where they have any other value than these.
Status check_plain(const json& config) {
  const json none;
  const auto unsupported = [](const char* key, const json& value) {
    return error(Code::UNSUPPORTED, "%s: '%s' is %s, only plain LoRA can be merged", kAdapterConfig,
                 key,
                 value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 64).c_str());
  };
  if (config.value("peft_type", json("LORA")) != "LORA")
    return unsupported("peft_type", config["peft_type"]);
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"})
    if (const json value = config.value(key, json(false)); value != false && !value.is_null())
      return unsupported(key, value);
  if (const json bias = config.value("bias", json("none")); bias != "none")
    return unsupported("bias", bias);
  for (const char* key : {"rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication",
                          "target_parameters", "trainable_token_indices"})
    if (const json value = config.value(key, none); !value.is_null() && !value.empty())
      return unsupported(key, value);
  return {};
}

bool ends_module(const std::string& name, const char* end, std::string* module) {
  const std::string_view prefix = kAdapterPrefix, suffix = end;
  if (!name.starts_with(prefix) || !name.ends_with(suffix) ||
      name.size() <= prefix.size() + suffix.size())
    return false;
  *module = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  return true;
}

Status read_matrix(const SafetensorsFile& file, const std::string& name, std::int64_t rows,
                   std::int64_t cols, std::vector<float>* out) {
  out->resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
  const std::vector<std::int64_t> shape = {rows, cols};
  return file.read_f32(name, shape, *out);
}

}  // namespace

Status Adapter::read_config(const std::string& path) {
  PLEXRL_ASSIGN(const std::string text, read_text(path, kMaxConfig));
  const json config = json::parse(text, nullptr, false);
  if (!config.is_object()) return error(Code::CORRUPT, "'%s': not a JSON object", path.c_str());
  PLEXRL_TRY(check_plain(config));
  const json rank = config.value("r", json()), alpha = config.value("lora_alpha", json());
  if (!rank.is_number_integer() || rank < 1 || rank > kMaxRank || !alpha.is_number())
    return error(Code::CORRUPT, "'%s': 'r' must be 1 to %lld and 'lora_alpha' a number",
                 path.c_str(), static_cast<long long>(kMaxRank));
  rank_ = rank.get<std::uint32_t>();
  alpha_ = alpha.get<double>();
  const bool by_root = config.value("use_rslora", json(false)) == true;  // Kalajdzievski 2023
  scale_ = static_cast<float>(by_root ? alpha_ / std::sqrt(rank_) : alpha_ / rank_);
  return {};
}

// What a save of an adapter writes of itself.
Status Adapter::read_metadata() {
  const auto& metadata = file_.metadata();
  const auto number = [&](const char* key) -> std::uint32_t {
    const auto found = metadata.find(key);
    std::uint32_t value = 0;
    if (found != metadata.end())
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    return value;
  };
  rank_ = number("plexrl_rank");
  alpha_ = number("plexrl_alpha");
  if (rank_ < 1 || rank_ > kMaxRank || alpha_ == 0)
    return error(Code::INVALID_ARGUMENT,
                 "the file is no save of an adapter: its metadata has no plexrl_rank and "
                 "plexrl_alpha");
  scale_ = static_cast<float>(alpha_ / rank_);
  return {};
}

Status Adapter::find_modules() {
  for (const auto& [name, tensor] : file_.tensors()) {
    std::string module;
    if (name.starts_with(kOptimizer) || ends_module(name, kB, &module)) continue;
    if (!ends_module(name, kA, &module))
      return error(Code::UNSUPPORTED, "tensor '%s' is not part of a plain LoRA adapter",
                   name.c_str());
    const auto other = file_.tensors().find(kAdapterPrefix + module + kB);
    const auto rank = static_cast<std::int64_t>(rank_);
    if (other == file_.tensors().end() || tensor.shape.size() != 2 ||
        other->second.shape.size() != 2 || tensor.shape[0] != rank ||
        other->second.shape[1] != rank)
      return error(Code::CORRUPT, "adapter of '%s': A and B are not matrices of rank %u",
                   module.c_str(), rank_);
    modules_[module] = {other->second.shape[0], tensor.shape[1]};
  }
  for (const auto& [name, tensor] : file_.tensors()) {
    std::string module;
    if (ends_module(name, kB, &module) && modules_.count(module) == 0)
      return error(Code::CORRUPT, "adapter of '%s': B without A", module.c_str());
  }
  if (!modules_.empty()) return {};
  return error(Code::INVALID_ARGUMENT, "there is no adapter in it");
}

Result<Adapter> Adapter::open(const std::string& path) {
  const bool directory = std::filesystem::is_directory(path);
  const std::string file = directory ? path + "/" + kAdapterFile : path;
  Adapter adapter;
  PLEXRL_ASSIGN(OpenSafetensors opened, open_safetensors(file, file));
  adapter.fd_ = std::move(opened.fd);
  adapter.file_ = std::move(opened.file);
  PLEXRL_TRY((directory ? adapter.read_config(path + "/" + kAdapterConfig)
                        : adapter.read_metadata().within(path)));
  PLEXRL_TRY(adapter.find_modules().within(file));
  return adapter;
}

Status Adapter::add_to(const std::string& module, std::span<float> weight) const {
  const Module& shape = modules_.at(module);
  const auto rank = static_cast<std::int64_t>(rank_);
  std::vector<float> a, b;
  PLEXRL_TRY(read_matrix(file_, kAdapterPrefix + module + kA, rank, shape.cols, &a));
  PLEXRL_TRY(read_matrix(file_, kAdapterPrefix + module + kB, shape.rows, rank, &b));
  const auto cols = static_cast<std::size_t>(shape.cols);
  PLEXRL_CHECK(weight.size() == static_cast<std::size_t>(shape.rows) * cols,
               "the weight has the module's shape");
  std::vector<float> sum(cols);
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (std::size_t r = 0; r < rank_; ++r) {
      const float factor = b[row * rank_ + r];
      for (std::size_t col = 0; col < cols; ++col) sum[col] += factor * a[r * cols + col];
    }
    for (std::size_t col = 0; col < cols; ++col) weight[row * cols + col] += scale_ * sum[col];
  }
  return {};
}

}  // namespace plexrl::model
