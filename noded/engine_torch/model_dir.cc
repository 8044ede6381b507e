// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/model_dir.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/unique_fd.h"
#include "engine_torch/model_state.h"
#include "models/safetensors.h"
#include "models/text_file.h"
#include "models/tokenizer_description.h"

namespace plexrl::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxText = 1 << 20;  // of config.json and plexrl_tokenizer.json
constexpr std::uint64_t kMaxIndexText = 16 << 20;
constexpr std::size_t kMaxShards = 1024;
constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTokenizer = "plexrl_tokenizer.json";

Result<UniqueFd> open_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd) return fd;
  const Code code = errno == ENOENT ? Code::NOT_FOUND : Code::IO;
  return errno_error(code, errno, "open '%s'", path.c_str());
}

Result<UniqueFd> create_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (fd) return fd;
  return errno_error(errno == EEXIST ? Code::EXISTS : Code::IO, errno, "create '%s'", path.c_str());
}

Status write_text(const std::string& path, std::string_view text) {
  PLEXRL_ASSIGN(const UniqueFd fd, create_file(path));
  while (!text.empty()) {
    const ssize_t put = ::write(fd.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return errno_error(Code::IO, put < 0 ? errno : EIO, "write '%s'", path.c_str());
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

// The files that hold the weights: one, or the shards that the index names.
Result<std::vector<std::string>> weight_files(const std::string& dir) {
  const Result<std::string> index = read_text(dir + "/" + kIndex, kMaxIndexText);
  if (!index.has_value() && index.error().code() == Code::NOT_FOUND)
    return std::vector<std::string>{kWeights};
  if (!index.has_value()) return index.error();
  const json object = json::parse(*index, nullptr, false);
  if (!object.is_object() || !object.contains("weight_map") || !object["weight_map"].is_object())
    return error(Code::CORRUPT, "%s: no object 'weight_map'", kIndex);
  std::vector<std::string> files;
  for (const auto& [name, value] : object["weight_map"].items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (file.empty() || file.find('/') != std::string::npos)
      return error(Code::CORRUPT, "%s: the file of a tensor must be a plain file name", kIndex);
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
    if (files.size() > kMaxShards)
      return error(Code::TOO_LARGE, "%s: more than %zu files", kIndex, kMaxShards);
  }
  return files;
}

class WeightFiles {
 public:
  static Result<WeightFiles> open(const std::string& dir) {
    WeightFiles all;
    PLEXRL_ASSIGN(const std::vector<std::string> names, weight_files(dir));
    for (const std::string& name : names) {
      PLEXRL_ASSIGN(UniqueFd fd, open_file(dir + "/" + name));
      Result<SafetensorsFile> file = SafetensorsFile::open(fd.get());
      if (!file.has_value()) return file.error().within(name);
      for (const auto& [tensor, stored] : file->tensors())
        if (!all.where_.emplace(tensor, all.files_.size()).second)
          return error(Code::CORRUPT, "tensor '%s' occurs in two files", tensor.c_str());
      all.files_.push_back(std::move(*file));
      all.fds_.push_back(std::move(fd));
    }
    return all;
  }
  [[nodiscard]] Result<const SafetensorsFile*> file_of(const std::string& tensor) const {
    const auto it = where_.find(tensor);
    if (it == where_.end()) return error(Code::NOT_FOUND, "tensor '%s' is missing", tensor.c_str());
    return &files_[it->second];
  }

 private:
  std::vector<UniqueFd> fds_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> where_;
};

Status write_weights(const std::string& path, const ArenaLayout& layout,
                     std::span<const float> weights) {
  PLEXRL_ASSIGN(const UniqueFd fd, create_file(path));
  std::vector<TensorToWrite> tensors;
  for (const TensorSlot& slot : layout.slots)
    tensors.push_back({slot.name, DType::kF32, slot.shape(), weights.data() + slot.offset,
                       slot.elements() * sizeof(float)});
  return write_safetensors(fd.get(), tensors, {{"format", "pt"}}).status();
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
  Result<WeightFiles> files = WeightFiles::open(dir.path);
  if (!files.has_value()) return files.error().within(dir.path);
  for (const TensorSlot& slot : full.slots) {
    PLEXRL_ASSIGN(const SafetensorsFile* file, files->file_of(slot.name));
    PLEXRL_TRY(file->check(slot.name, slot.shape()).within(dir.path));
  }
  std::fill(weights.begin(), weights.end(), 0.0F);
  for (const TensorSlot& slot : full.slots) {
    PLEXRL_ASSIGN(const SafetensorsFile* file, files->file_of(slot.name));
    PLEXRL_TRY(
        file->read_f32(slot.name, slot.shape(), weights.subspan(slot.offset, slot.elements()))
            .within(dir.path));
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
  PLEXRL_TRY(write_text(path + "/" + kConfig, format_model_config(config)));
  PLEXRL_TRY(write_text(path + "/" + kTokenizer, tokenizer));
  return write_weights(path + "/" + kWeights, layout.full, weights);
}

}  // namespace plexrl::model
