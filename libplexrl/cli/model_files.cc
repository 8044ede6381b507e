// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include <algorithm>
#include <set>

#include "cli/train/tokenizer.h"
#include "engine_torch/arena_layout.h"
#include "models/text_file.h"
#include "models/tokenizer_description.h"
#include "models/weight_files.h"

namespace plexrl::cli {
namespace {

constexpr std::uint64_t kMaxConfig = 1 << 20;

model::ArenaLayout layout_of(const model::ModelConfig& config) {
  return model::make_model_layout(config, wire::TrainMode::None, 0).value().full;
}

void note(const Status& status, ModelCheck& check) {
  if (status.ok()) return;
  if (check.problems.empty()) check.code = status.code();
  check.problems.push_back(status.text());
}

// As a job that trains would read it.
Status check_tokenizer(const std::string& dir, std::int64_t vocab_size) {
  PLEXRL_ASSIGN(std::string description, model::describe_tokenizer(dir, vocab_size));
  if (description.empty()) {
    const auto own = model::read_text(dir + "/plexrl_tokenizer.json", kMaxConfig);
    if (!own.has_value() && own.error().code() == Code::NOT_FOUND)
      return error(Code::NOT_FOUND, "no tokenizer.json and no plexrl_tokenizer.json");
    PLEXRL_ASSIGN(description, own);
  }
  return make_tokenizer(description).status();
}

// Files may hold what no decoder of ours needs: constants of the rotation, which we compute, and
// the head of a model that uses its embedding for it.
bool needless(const std::string& name, const model::ModelConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tied_head && name == "lm_head.weight");
}

void check_tensors(const model::WeightFiles& files, ModelCheck& check) {
  std::set<std::string> names;
  for (const model::TensorShape& tensor : tensors_of(check.config)) {
    names.insert(tensor.name);
    const auto file = files.file_of(tensor.name);
    note(file.has_value() ? (*file)->check(tensor.name, tensor.shape) : file.error(), check);
    if (check.problems.size() > 8) return;  // the rest would say the same
  }
  for (const auto& file : files.files())
    for (const auto& [name, tensor] : file.tensors())
      if (names.count(name) == 0 && !needless(name, check.config)) {
        note(error(Code::UNSUPPORTED, "tensor '%s' is not one of a model of this config.json",
                   name.c_str()),
             check);
        return;
      }
}

void check_weights(const std::string& dir, bool config_known, ModelCheck& check) {
  const auto files = model::WeightFiles::open(dir);
  note(files.status(), check);
  if (!files.has_value()) return;
  std::set<std::string_view> types;
  for (std::size_t i = 0; i < files->files().size(); ++i) {
    const auto& file = files->files()[i];
    note(file.check_cover().within(files->names()[i]), check);
    check.bytes += file.bytes();
    for (const auto& [name, tensor] : file.tensors()) types.insert(model::dtype_name(tensor.dtype));
  }
  if (!types.empty()) check.dtype = types.size() == 1 ? *types.begin() : "mixed";
  if (config_known) check_tensors(*files, check);
}

void compare(const char* name, std::uint64_t registered, std::int64_t of_config,
             ModelCheck& check) {
  if (registered == 0 || registered == static_cast<std::uint64_t>(of_config)) return;
  note(error(Code::INVALID_ARGUMENT, "config.json has %s %lld, the site file %llu", name,
             static_cast<long long>(of_config), static_cast<unsigned long long>(registered)),
       check);
}

}  // namespace

ModelCheck check_model_dir(const std::string& dir) {
  ModelCheck check;
  const auto text = model::read_text(dir + "/config.json", kMaxConfig);
  note(text.status(), check);
  bool known = false;
  if (text.has_value()) {
    const auto config = model::parse_model_config(*text);
    note(config.status(), check);
    known = config.has_value();
    if (known) check.config = *config;
    if (known) check.parameters = layout_of(*config).parameters;
  }
  note(check_tokenizer(dir, known ? check.config.vocab_size : INT64_MAX), check);
  check_weights(dir, known, check);
  return check;
}

std::vector<model::TensorShape> tensors_of(const model::ModelConfig& config) {
  std::vector<model::TensorShape> tensors;
  for (const model::TensorSlot& slot : layout_of(config).slots)
    tensors.push_back({slot.name, slot.shape()});
  return tensors;
}

ModelCheck check_model(const config::ModelEntry& entry) {
  ModelCheck check = check_model_dir(entry.path);
  if (check.config.layers == 0) return check;  // config.json could not be read
  compare("hidden_size", entry.hidden_size, check.config.hidden_size, check);
  compare("num_hidden_layers", entry.layers, check.config.layers, check);
  compare("intermediate_size", entry.intermediate_size, check.config.intermediate_size, check);
  if (check.problems.empty() && entry.parameters != 0 && entry.parameters != check.parameters)
    note(error(Code::INVALID_ARGUMENT, "the files hold %llu parameters, the site file says %llu",
               static_cast<unsigned long long>(check.parameters),
               static_cast<unsigned long long>(entry.parameters)),
         check);
  return check;
}

Status status_of(const ModelCheck& check) {
  if (check.problems.empty()) return {};
  const std::size_t more = check.problems.size() - 1;
  return error(check.code, "%s%s", check.problems.front().c_str(),
               more == 0 ? "" : (" (and " + std::to_string(more) + " more)").c_str());
}

}  // namespace plexrl::cli
