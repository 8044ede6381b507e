// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/model_dir.h"

#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/unique_fd.h"
#include "engine_torch/model_state.h"
#include "models/safetensors.h"
#include "models/text_file.h"
#include "models/tokenizer_description.h"
#include "models/weight_files.h"
#include "models/write_file.h"

namespace plexrl::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxText = 1 << 20;  // of config.json and plexrl_tokenizer.json
constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "plexrl_tokenizer.json";

Status write_new(const std::string& path, std::string_view text) {
  PLEXRL_ASSIGN(const UniqueFd fd, create_file(path, O_EXCL));
  return write_at(fd.get(), text.data(), text.size(), 0, "'" + path + "'");
}

Status write_weights(const std::string& path, const ArenaLayout& layout,
                     std::span<const float> weights) {
  PLEXRL_ASSIGN(const UniqueFd fd, create_file(path, O_EXCL));
  std::vector<TensorToWrite> tensors;
  for (const TensorSlot& slot : layout.slots)
    tensors.push_back({slot.name, DType::kF32, slot.shape(), weights.data() + slot.offset,
                       slot.elements() * sizeof(float)});
  return write_safetensors(fd.get(), tensors, {{"format", "pt"}}).status();
}

// Every tensor of the layout is there and has its shape.
Result<WeightFiles> open_weights(const ModelDir& dir, const ArenaLayout& full) {
  Result<WeightFiles> files = WeightFiles::open(dir.path);
  if (!files.has_value()) return files.error().within(dir.path);
  for (const TensorSlot& slot : full.slots) {
    PLEXRL_ASSIGN(const SafetensorsFile* file, files->file_of(slot.name));
    PLEXRL_TRY(file->check(slot.name, slot.shape()).within(dir.path));
  }
  return files;
}

Status read_slot(const ModelDir& dir, const WeightFiles& files, const TensorSlot& slot,
                 std::span<float> out) {
  PLEXRL_ASSIGN(const SafetensorsFile* file, files.file_of(slot.name));
  return file->read_f32(slot.name, slot.shape(), out).within(dir.path);
}

}  // namespace

Result<ModelDir> open_model_dir(const std::string& path) {
  ModelDir dir;
  dir.path = path;
  PLEXRL_ASSIGN(const std::string config, read_text(path + "/" + kConfig, kMaxText));
  Result<ModelConfig> parsed = parse_model_config(config);
  if (!parsed.has_value()) return parsed.error().within(path);
  dir.config = *parsed;
  PLEXRL_ASSIGN(dir.tokenizer, describe_tokenizer(path, dir.config.vocab_size));
  if (!dir.tokenizer.empty()) return dir;
  Result<std::string> tokenizer = read_text(path + "/" + kTokenizer, kMaxText);
  if (!tokenizer.has_value() && tokenizer.error().code() == Code::NOT_FOUND) return dir;
  if (!tokenizer.has_value()) return tokenizer.error();
  if (!json::accept(*tokenizer))
    return error(Code::CORRUPT, "'%s/%s': not JSON", path.c_str(), kTokenizer);
  dir.tokenizer = std::move(*tokenizer);
  return dir;
}

Status load_base_weights(const ModelDir& dir, const ArenaLayout& full, std::span<float> weights) {
  PLEXRL_ASSIGN(const WeightFiles files, open_weights(dir, full));
  std::fill(weights.begin(), weights.end(), 0.0F);
  for (const TensorSlot& slot : full.slots)
    PLEXRL_TRY(read_slot(dir, files, slot, weights.subspan(slot.offset, slot.elements())));
  return {};
}

Status load_base_weights16(const ModelDir& dir, const ArenaLayout& full, std::span<Bf16> weights) {
  PLEXRL_ASSIGN(const WeightFiles files, open_weights(dir, full));
  std::fill(weights.begin(), weights.end(), Bf16{0});
  std::vector<float> tensor;
  for (const TensorSlot& slot : full.slots) {
    tensor.resize(slot.elements());
    PLEXRL_TRY(read_slot(dir, files, slot, tensor));
    round_bf16(tensor.data(), weights.data() + slot.offset,
               static_cast<std::int64_t>(tensor.size()));
  }
  return {};
}

Status init_model_dir(const std::string& path, std::string_view config_json,
                      std::string_view tokenizer, std::uint64_t seed) {
  PLEXRL_ASSIGN(const ModelConfig config, parse_model_config(config_json));
  if (!json::accept(tokenizer)) return error(Code::INVALID_ARGUMENT, "the tokenizer is not JSON");
  PLEXRL_ASSIGN(const ModelLayout layout, make_model_layout(config, wire::TrainMode::None, 0));
  std::vector<float> weights(layout.full.elements);
  const double std = 0.02 * std::sqrt(768.0 / static_cast<double>(config.hidden_size)) * 0.7;
  initialise(layout.full, config.layers, seed, std, weights);
  PLEXRL_TRY(write_new(path + "/" + kConfig, format_model_config(config)));
  PLEXRL_TRY(write_new(path + "/" + kTokenizer, tokenizer));
  return write_weights(path + "/" + kWeightFile, layout.full, weights);
}

}  // namespace plexrl::model
