// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/unique_fd.h"
#include "models/gguf_file.h"
#include "models/gguf_tokenizer.h"
#include "models/partial_directory.h"
#include "models/safetensors.h"
#include "models/weight_files.h"
#include "models/write_file.h"

namespace plexrl::model {
namespace {

using nlohmann::json;

struct Family {
  std::string_view name;  // general.architecture, and model_type of config.json
  const char* architecture;
  bool interleaved;  // rows of q and k are permuted for interleaved rotary embedding
  bool biases;       // of q, k and v
  bool head_norms;   // of q and k
};
constexpr std::array<Family, 3> kFamilies = {{{"llama", "LlamaForCausalLM", true, false, false},
                                              {"qwen2", "Qwen2ForCausalLM", false, true, false},
                                              {"qwen3", "Qwen3ForCausalLM", false, false, true}}};

struct Shape {
  std::int64_t layers = 0, width = 0, inner = 0, heads = 0, kv_heads = 0, head = 0, context = 0;
  std::int64_t vocabulary = 0;
  double eps = 0, theta = 10000;
  bool tied = false;
};

// One tensor of the directory: where it comes from, and how many heads its rows are permuted in.
struct Planned {
  std::string from, to;
  std::vector<std::int64_t> shape;
  std::int64_t heads = 0;  // 0: not permuted
};

Result<Family> family_of(const GgufFile& file) {
  PLEXRL_ASSIGN(const std::string name, file.text("general.architecture"));
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.name == name) return family;
    known.append(known.empty() ? "" : ", ").append(family.name);
  }
  return error(Code::UNSUPPORTED, "gguf: architecture '%s'; read are %s",
               name.substr(0, 64).c_str(), known.c_str());
}

Status read_count(const GgufFile& file, const std::string& key, std::int64_t* out) {
  constexpr std::int64_t kMost = 1 << 24;
  PLEXRL_ASSIGN(*out, file.integer(key));
  if (*out >= 1 && *out <= kMost) return {};
  return error(Code::INVALID_ARGUMENT, "gguf: %s is %lld, must be 1 to %lld", key.c_str(),
               static_cast<long long>(*out), static_cast<long long>(kMost));
}

// A float32 as somebody wrote it: 1e-05, not 9.999999747378752e-06.
Status read_real(const GgufFile& file, const std::string& key, double* out) {
  PLEXRL_ASSIGN(*out, file.real(key));
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(*out));
  (void)std::from_chars(text.data(), end.ptr, *out);
  return {};
}

// What we would compute wrongly if it were left out.
Status check_rope(const GgufFile& file, const std::string& prefix, const Shape& shape) {
  if (file.has(prefix + "rope.scaling.type")) {
    PLEXRL_ASSIGN(const std::string kind, file.text(prefix + "rope.scaling.type"));
    if (kind != "none")
      return error(Code::UNSUPPORTED, "gguf: rotary embedding scaled by '%s'",
                   kind.substr(0, 64).c_str());
  }
  if (!file.has(prefix + "rope.dimension_count")) return {};
  PLEXRL_ASSIGN(const std::int64_t rotated, file.integer(prefix + "rope.dimension_count"));
  if (rotated == shape.head) return {};
  return error(Code::UNSUPPORTED, "gguf: %lld of %lld dimensions of a head are rotated",
               static_cast<long long>(rotated), static_cast<long long>(shape.head));
}

Result<Shape> shape_of(const GgufFile& file, const Family& family) {
  Shape shape;
  const std::string prefix = std::string(family.name) + ".";
  PLEXRL_TRY(read_count(file, prefix + "block_count", &shape.layers));
  PLEXRL_TRY(read_count(file, prefix + "embedding_length", &shape.width));
  PLEXRL_TRY(read_count(file, prefix + "feed_forward_length", &shape.inner));
  PLEXRL_TRY(read_count(file, prefix + "context_length", &shape.context));
  PLEXRL_TRY(read_count(file, prefix + "attention.head_count", &shape.heads));
  shape.kv_heads = shape.heads;
  if (file.has(prefix + "attention.head_count_kv"))
    PLEXRL_TRY(read_count(file, prefix + "attention.head_count_kv", &shape.kv_heads));
  shape.head = shape.width / shape.heads;
  if (file.has(prefix + "attention.key_length"))
    PLEXRL_TRY(read_count(file, prefix + "attention.key_length", &shape.head));
  PLEXRL_TRY(read_real(file, prefix + "attention.layer_norm_rms_epsilon", &shape.eps));
  if (file.has(prefix + "rope.freq_base"))
    PLEXRL_TRY(read_real(file, prefix + "rope.freq_base", &shape.theta));
  shape.tied = file.tensors().count("output.weight") == 0;
  if (shape.heads % shape.kv_heads != 0 || shape.head < 2 || shape.head % 2 != 0)
    return error(Code::INVALID_ARGUMENT, "gguf: heads %lld, of key and value %lld, of size %lld",
                 static_cast<long long>(shape.heads), static_cast<long long>(shape.kv_heads),
                 static_cast<long long>(shape.head));
  PLEXRL_TRY(check_rope(file, prefix, shape));
  return shape;
}

void plan_layer(const Family& family, const Shape& shape, std::int64_t layer,
                std::vector<Planned>* plan) {
  const std::string from = "blk." + std::to_string(layer) + ".";
  const std::string to = "model.layers." + std::to_string(layer) + ".";
  const std::int64_t q = shape.heads * shape.head;
  const std::int64_t kv = shape.kv_heads * shape.head;
  const auto add = [&](const char* their, const char* our, std::vector<std::int64_t> size,
                       std::int64_t heads = 0) {
    plan->push_back({from + their, to + our, std::move(size), family.interleaved ? heads : 0});
  };
  add("attn_norm.weight", "input_layernorm.weight", {shape.width});
  add("attn_q.weight", "self_attn.q_proj.weight", {q, shape.width}, shape.heads);
  add("attn_k.weight", "self_attn.k_proj.weight", {kv, shape.width}, shape.kv_heads);
  add("attn_v.weight", "self_attn.v_proj.weight", {kv, shape.width});
  if (family.biases) {
    add("attn_q.bias", "self_attn.q_proj.bias", {q});
    add("attn_k.bias", "self_attn.k_proj.bias", {kv});
    add("attn_v.bias", "self_attn.v_proj.bias", {kv});
  }
  if (family.head_norms) {
    add("attn_q_norm.weight", "self_attn.q_norm.weight", {shape.head});
    add("attn_k_norm.weight", "self_attn.k_norm.weight", {shape.head});
  }
  add("attn_output.weight", "self_attn.o_proj.weight", {shape.width, q});
  add("ffn_norm.weight", "post_attention_layernorm.weight", {shape.width});
  add("ffn_gate.weight", "mlp.gate_proj.weight", {shape.inner, shape.width});
  add("ffn_up.weight", "mlp.up_proj.weight", {shape.inner, shape.width});
  add("ffn_down.weight", "mlp.down_proj.weight", {shape.width, shape.inner});
}

// Every tensor of the file has its place, and every place its tensor.
Result<std::vector<Planned>> plan_of(const GgufFile& file, const Family& family,
                                     const Shape& shape) {
  std::vector<Planned> plan;
  plan.push_back(
      {"token_embd.weight", "model.embed_tokens.weight", {shape.vocabulary, shape.width}});
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    if (file.tensors().count("blk." + std::to_string(layer) + ".attn_norm.weight") != 0)
      plan_layer(family, shape, layer, &plan);
    else
      return error(Code::CORRUPT, "gguf: layer %lld of %lld is missing",
                   static_cast<long long>(layer), static_cast<long long>(shape.layers));
  plan.push_back({"output_norm.weight", "model.norm.weight", {shape.width}});
  if (!shape.tied)
    plan.push_back({"output.weight", "lm_head.weight", {shape.vocabulary, shape.width}});
  std::set<std::string> known;
  for (const Planned& one : plan) {
    known.insert(one.from);
    const auto found = file.tensors().find(one.from);
    if (found == file.tensors().end())
      return error(Code::CORRUPT, "gguf: tensor '%s' is missing", one.from.c_str());
    if (found->second.shape != one.shape)
      return error(Code::CORRUPT, "gguf: tensor '%s' has another shape than the model",
                   one.from.c_str());
  }
  for (const auto& [name, tensor] : file.tensors())
    if (known.count(name) == 0)
      return error(Code::UNSUPPORTED, "gguf: tensor '%s' is not one of a plain %s", name.c_str(),
                   std::string(family.name).c_str());
  return plan;
}

json config_of(const Family& family, const Shape& shape) {
  json config = {{"architectures", {family.architecture}},
                 {"model_type", family.name},
                 {"hidden_act", "silu"},
                 {"vocab_size", shape.vocabulary},
                 {"hidden_size", shape.width},
                 {"num_hidden_layers", shape.layers},
                 {"num_attention_heads", shape.heads},
                 {"num_key_value_heads", shape.kv_heads},
                 {"head_dim", shape.head},
                 {"intermediate_size", shape.inner},
                 {"max_position_embeddings", shape.context},
                 {"rms_norm_eps", shape.eps},
                 {"rope_theta", shape.theta},
                 {"tie_word_embeddings", shape.tied},
                 {"torch_dtype", "float32"}};
  if (!family.biases) config["attention_bias"] = false;
  return config;
}

// From pairs of neighbouring rows to the two halves of a head.
std::vector<float> unpermuted(const std::vector<float>& values, std::int64_t heads,
                              std::int64_t rows) {
  const auto head = static_cast<std::size_t>(rows / heads);
  const std::size_t width = values.size() / static_cast<std::size_t>(rows);
  std::vector<float> out(values.size());
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const std::size_t in_head = row % head;
    const std::size_t target = row - in_head + in_head % 2 * (head / 2) + in_head / 2;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * width), width,
                out.begin() + static_cast<std::ptrdiff_t>(target * width));
  }
  return out;
}

Status write_json(const std::string& path, const json& document) {
  return write_text(path, document.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

std::uint64_t missing_bytes(int fd, const std::vector<TensorSpec>& specs) {
  struct stat info {};
  const auto there = ::fstat(fd, &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  std::uint64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += spec.bytes;
  return bytes - std::min(bytes, there);
}

Status write_weights(const GgufFile& file, const std::vector<Planned>& plan,
                     const std::string& path, const ImportProgress& progress,
                     ImportedModel* model) {
  std::vector<TensorSpec> specs;
  for (const Planned& one : plan) {
    const auto elements = static_cast<std::uint64_t>(file.tensors().at(one.from).elements());
    model->parameters += elements;
    specs.push_back({one.to, DType::kF32, one.shape, elements * sizeof(float)});
  }
  PLEXRL_ASSIGN(const UniqueFd fd, create_file(path));
  PLEXRL_TRY(check_room(path, missing_bytes(fd.get(), specs)));
  PLEXRL_ASSIGN(auto writer, SafetensorsWriter::begin(fd.get(), std::move(specs),
                                                      {{"format", "pt"}}, /*keep_equal=*/true));
  std::uint64_t done = 0;
  for (const Planned& one : plan) {
    PLEXRL_ASSIGN(auto values, file.read(one.from));
    if (one.heads != 0) values = unpermuted(values, one.heads, one.shape.front());
    PLEXRL_TRY(writer.append(values.data(), values.size() * sizeof(float)));
    done += values.size();
    if (!progress(done * sizeof(float), model->parameters * sizeof(float)))
      return error(Code::CANCELLED, "the import was cancelled; the same command goes on from here");
  }
  PLEXRL_ASSIGN(model->bytes, writer.finish());
  return sync_file(fd.get(), path);
}

// config.json comes last, so that what is not whole has none.
Status write_directory(const GgufFile& file, const Family& family, const PartialDirectory& to,
                       const ImportProgress& progress, ImportedModel* model) {
  PLEXRL_ASSIGN(const TokenizerFiles tokenizer, tokenizer_of(file));
  PLEXRL_ASSIGN(Shape shape, shape_of(file, family));
  shape.vocabulary = static_cast<std::int64_t>(tokenizer.vocabulary);
  PLEXRL_ASSIGN(const auto plan, plan_of(file, family, shape));
  PLEXRL_TRY(to.keep_only({kWeightFile}));
  PLEXRL_TRY(write_json(to.file("tokenizer.json"), tokenizer.tokenizer));
  PLEXRL_TRY(write_json(to.file("tokenizer_config.json"), tokenizer.config));
  PLEXRL_TRY(write_weights(file, plan, to.file(kWeightFile), progress, model));
  return write_json(to.file("config.json"), config_of(family, shape));
}

// What a later import can go on from.
bool worth_keeping(Code code) { return code == Code::CANCELLED || code == Code::IO; }

}  // namespace

Result<ImportedModel> import_gguf(const std::string& from, const std::string& to,
                                  const ImportProgress& progress) {
  const UniqueFd fd(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "open '%s'",
                       from.c_str());
  PLEXRL_ASSIGN(const GgufFile file, GgufFile::open(fd.get()));
  PLEXRL_ASSIGN(const Family family, family_of(file));
  PLEXRL_ASSIGN(PartialDirectory partial, PartialDirectory::open(to));
  ImportedModel model;
  model.architecture = family.name;
  const auto hashed = [&](std::uint64_t) {
    return progress(model.parameters * sizeof(float), model.parameters * sizeof(float));
  };
  Status status = write_directory(file, family, partial, progress, &model);
  if (status.ok()) status = partial.write_checksums(hashed);
  if (status.ok()) status = partial.publish();
  if (status.ok()) return model;
  if (!worth_keeping(status.code())) partial.remove();
  return status;
}

}  // namespace plexrl::model
