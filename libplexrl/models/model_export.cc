// SPDX-License-Identifier: Apache-2.0
#include "models/model_export.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "models/adapter.h"
#include "models/half.h"
#include "models/partial_directory.h"
#include "models/side_files.h"
#include "models/text_file.h"
#include "models/weight_files.h"
#include "models/write_file.h"

namespace plexrl::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxConfig = 1 << 20;
constexpr std::uint64_t kMaxSideFile = 64 << 20;
constexpr const char* kConfig = "config.json";

// One tensor of the result: where its numbers come from, and as what they are written.
struct OutTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::kF32;
  std::function<Status(std::span<float>)> read;
  [[nodiscard]] std::uint64_t elements() const {
    std::uint64_t count = 1;
    for (const std::int64_t dim : shape) count *= static_cast<std::uint64_t>(dim);
    return count;
  }
};

Result<std::vector<std::uint16_t>> narrowed(std::span<const float> values, DType dtype,
                                            const std::string& name) {
  std::vector<std::uint16_t> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[i] = dtype == DType::kF16 ? to_half(values[i]) : to_bfloat16(values[i]);
    if (dtype == DType::kF16 && std::isfinite(values[i]) && (out[i] & 0x7fffU) == 0x7c00U)
      return error(Code::INVALID_ARGUMENT, "tensor '%s' holds %g, too large for float16",
                   name.c_str(), static_cast<double>(values[i]));
  }
  return out;
}

Status append(SafetensorsWriter& writer, std::span<const float> values, const OutTensor& tensor) {
  if (tensor.dtype == DType::kF32) return writer.append(values.data(), values.size_bytes());
  PLEXRL_ASSIGN(const auto narrow, narrowed(values, tensor.dtype, tensor.name));
  return writer.append(narrow.data(), narrow.size() * sizeof(std::uint16_t));
}

Result<ExportedModel> write_tensors(const std::string& path, const std::vector<OutTensor>& tensors,
                                    const ExportProgress& progress) {
  std::vector<TensorSpec> specs;
  std::uint64_t all = 0, done = 0;
  ExportedModel result;
  for (const OutTensor& tensor : tensors) {
    specs.push_back(
        {tensor.name, tensor.dtype, tensor.shape, tensor.elements() * dtype_bytes(tensor.dtype)});
    all += specs.back().bytes;
    result.parameters += tensor.elements();
    result.dtype = tensor.dtype;
  }
  PLEXRL_ASSIGN(const UniqueFd fd, create_file(path));
  PLEXRL_TRY(check_room(path, all));
  PLEXRL_ASSIGN(auto writer, SafetensorsWriter::begin(fd.get(), specs, {{"format", "pt"}}));
  std::vector<float> values;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    values.resize(tensors[i].elements());
    PLEXRL_TRY(tensors[i].read(values));
    PLEXRL_TRY(append(writer, values, tensors[i]));
    if (!progress(done += specs[i].bytes, all))
      return error(Code::CANCELLED, "cancelled; nothing is left of it");
  }
  PLEXRL_ASSIGN(result.bytes, writer.finish());
  PLEXRL_TRY(sync_file(fd.get(), path));
  return result;
}

Result<json> read_config(const std::string& dir) {
  PLEXRL_ASSIGN(const std::string text, read_text(dir + "/" + kConfig, kMaxConfig));
  json config = json::parse(text, nullptr, false);
  if (config.is_object()) return config;
  return error(Code::CORRUPT, "'%s/%s': not a JSON object", dir.c_str(), kConfig);
}

const char* torch_name(DType dtype) {
  if (dtype == DType::kF32) return "float32";
  return dtype == DType::kF16 ? "float16" : "bfloat16";
}

// The base's configuration, with the type that the weights have now, and its tokenizer. The base's
// README tells of another model.
Status write_sides(const std::string& base_dir, json config, DType dtype,
                   const PartialDirectory& to) {
  for (const char* name : kSideFiles) {
    if (std::string_view(name) == "README.md") continue;
    const auto text = read_text(base_dir + "/" + name, kMaxSideFile);
    if (!text.has_value() && text.error().code() == Code::NOT_FOUND) continue;
    PLEXRL_TRY(text.status());
    PLEXRL_TRY(write_text(to.file(name), *text));
  }
  // Newer files call it "dtype".
  const char* const key = config.contains("dtype") ? "dtype" : "torch_dtype";
  config[key] = torch_name(dtype);
  return write_text(to.file(kConfig),
                    config.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

// Gives the directory its name, or leaves nothing.
template <class Fill>
Result<ExportedModel> make_directory(const std::string& name, const ExportProgress& progress,
                                     const Fill& fill) {
  PLEXRL_ASSIGN(PartialDirectory to, PartialDirectory::open(name));
  PLEXRL_TRY(to.keep_only({}));
  Result<ExportedModel> made = fill(to);
  Status status = made.status();
  const auto hashed = [&](std::uint64_t) { return progress(made->bytes, made->bytes); };
  if (status.ok()) status = to.write_checksums(hashed);
  if (status.ok()) status = to.publish();
  if (status.ok()) return made;
  to.remove();
  return status;
}

json adapter_config(const Adapter& adapter, const std::string& base) {
  std::set<std::string> targets;
  for (const auto& [module, shape] : adapter.modules())
    targets.insert(module.substr(module.rfind('.') + 1));
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base.empty() ? json() : json(base)},
          {"r", adapter.rank()},
          {"lora_alpha", static_cast<std::uint32_t>(adapter.alpha())},
          {"lora_dropout", 0.0},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"modules_to_save", nullptr},
          {"use_dora", false},
          {"use_rslora", false},
          {"target_modules", targets}};
}

// Every module of the adapter is a matrix of the base, of the same shape.
Status check_modules(const Adapter& adapter, const std::vector<TensorShape>& tensors) {
  for (const auto& [module, shape] : adapter.modules()) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorShape& one) {
      return one.shape.size() == 2 && one.name == module + ".weight";
    });
    if (found == tensors.end())
      return error(Code::UNSUPPORTED, "the adapter changes '%s', which the base has not",
                   module.c_str());
    if (found->shape[0] != shape.rows || found->shape[1] != shape.cols)
      return error(Code::INVALID_ARGUMENT, "the adapter of '%s' is for another shape",
                   module.c_str());
  }
  return {};
}

}  // namespace

namespace {

// What `plexrl train --checkpoint` names is text, beside which the model lies.
bool begins_like_json(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  char first[2] = {};
  return file.read(first, sizeof first) && first[0] == '{' && first[1] == '"';
}

}  // namespace

Result<SavedKind> saved_kind(const std::string& path) {
  const auto opened = open_safetensors(path, path);
  if (!opened && begins_like_json(path))
    return error(
        Code::INVALID_ARGUMENT,
        "'%s' is the state of a run; the model of that checkpoint is '%s.STEP.safetensors'",
        path.c_str(), path.c_str());
  if (!opened) return opened.error();
  const OpenSafetensors& saved = *opened;
  const auto mode = saved.file.metadata().find("plexrl_mode");
  if (mode != saved.file.metadata().end() && mode->second == "lora") return SavedKind::kAdapter;
  if (mode != saved.file.metadata().end() && mode->second == "full") return SavedKind::kFull;
  return error(Code::INVALID_ARGUMENT,
               "'%s' is not the file of a save: its metadata has no plexrl_mode", path.c_str());
}

Result<ExportedModel> export_peft(const ModelExport& request, const ExportProgress& progress) {
  PLEXRL_ASSIGN(const Adapter adapter, Adapter::open(request.from));
  std::vector<OutTensor> tensors;
  for (const auto& [name, stored] : adapter.file().tensors())
    if (name.starts_with(kAdapterPrefix))
      tensors.push_back({name, stored.shape, request.dtype.value_or(DType::kF32),
                         [&, name = name, shape = stored.shape](std::span<float> out) {
                           return adapter.file().read_f32(name, shape, out);
                         }});
  return make_directory(request.to, progress,
                        [&](const PartialDirectory& to) -> Result<ExportedModel> {
                          PLEXRL_ASSIGN(const ExportedModel made,
                                        write_tensors(to.file(kAdapterFile), tensors, progress));
                          const json config = adapter_config(adapter, request.base);
                          PLEXRL_TRY(write_text(to.file(kAdapterConfig), config.dump(2) + "\n"));
                          return made;
                        });
}

Result<ExportedModel> export_full(const ModelExport& request, const ExportProgress& progress) {
  PLEXRL_ASSIGN(const OpenSafetensors saved, open_safetensors(request.from, request.from));
  PLEXRL_ASSIGN(const json config, read_config(request.base));
  const DType dtype = request.dtype.value_or(DType::kF32);
  std::vector<OutTensor> tensors;
  for (const TensorShape& one : request.tensors) {
    const std::vector<std::int64_t>& shape = one.shape;
    PLEXRL_TRY(saved.file.check(one.name, shape).within(request.from));
    tensors.push_back(
        {one.name, shape, dtype, [&, name = one.name, shape = one.shape](std::span<float> out) {
           return saved.file.read_f32(name, shape, out);
         }});
  }
  return make_directory(request.to, progress,
                        [&](const PartialDirectory& to) -> Result<ExportedModel> {
                          PLEXRL_ASSIGN(const ExportedModel made,
                                        write_tensors(to.file(kWeightFile), tensors, progress));
                          PLEXRL_TRY(write_sides(request.base, config, dtype, to));
                          return made;
                        });
}

Result<ExportedModel> merge_adapter(const ModelExport& request, const ExportProgress& progress) {
  PLEXRL_ASSIGN(const Adapter adapter, Adapter::open(request.from));
  PLEXRL_ASSIGN(const json config, read_config(request.base));
  auto opened = WeightFiles::open(request.base);
  if (!opened.has_value()) return opened.error().within(request.base);
  const WeightFiles files = std::move(*opened);
  PLEXRL_TRY(check_modules(adapter, request.tensors));
  std::vector<OutTensor> tensors;
  for (const TensorShape& one : request.tensors) {
    const std::vector<std::int64_t>& shape = one.shape;
    PLEXRL_ASSIGN(const SafetensorsFile* file, files.file_of(one.name));
    PLEXRL_TRY(file->check(one.name, shape).within(request.base));
    const std::string module = one.name.substr(0, one.name.rfind('.'));
    const bool changed = adapter.modules().count(module) != 0 && one.name == module + ".weight";
    tensors.push_back(
        {one.name, shape, request.dtype.value_or(file->tensors().at(one.name).dtype),
         [&, file, name = one.name, shape = one.shape, module, changed](std::span<float> out) {
           PLEXRL_TRY(file->read_f32(name, shape, out));
           return changed ? adapter.add_to(module, out) : Status();
         }});
  }
  return make_directory(request.to, progress,
                        [&](const PartialDirectory& to) -> Result<ExportedModel> {
                          PLEXRL_ASSIGN(const ExportedModel made,
                                        write_tensors(to.file(kWeightFile), tensors, progress));
                          PLEXRL_TRY(write_sides(request.base, config, tensors.front().dtype, to));
                          return made;
                        });
}

}  // namespace plexrl::model
