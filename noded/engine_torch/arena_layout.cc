// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/arena_layout.h"

namespace plexrl::model {
namespace {

using wire::SegmentKind;
using wire::TrainMode;

constexpr std::uint64_t kTensorAlign = 64;   // elements
constexpr std::uint64_t kArenaAlign = 1024;  // elements: 4 KiB
constexpr std::uint64_t kMaxKvBytes = 1ULL << 48;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

class LayoutBuilder {
 public:
  void matrix(std::string name, std::int64_t rows, std::int64_t cols, TensorInit init) {
    add({std::move(name), rows, cols, false, 0, init});
  }
  void vector(std::string name, std::int64_t size, TensorInit init = TensorInit::kOnes) {
    add({std::move(name), 1, size, true, 0, init});
  }
  ArenaLayout finish() {
    layout_.elements = round_up(layout_.elements, kArenaAlign);
    return std::move(layout_);
  }

 private:
  void add(TensorSlot slot) {
    slot.offset = layout_.elements;
    layout_.parameters += slot.elements();
    layout_.elements += round_up(slot.elements(), kTensorAlign);
    layout_.slots.push_back(std::move(slot));
  }
  ArenaLayout layout_;
};

struct Target {
  const char* name;
  std::int64_t out, in;
  TensorInit init;
};
std::vector<Target> targets(const ModelConfig& c) {
  return {{"self_attn.q_proj", c.query_size(), c.hidden_size, TensorInit::kNormal},
          {"self_attn.k_proj", c.kv_size(), c.hidden_size, TensorInit::kNormal},
          {"self_attn.v_proj", c.kv_size(), c.hidden_size, TensorInit::kNormal},
          {"self_attn.o_proj", c.hidden_size, c.query_size(), TensorInit::kNormalOutput},
          {"mlp.gate_proj", c.intermediate_size, c.hidden_size, TensorInit::kNormal},
          {"mlp.up_proj", c.intermediate_size, c.hidden_size, TensorInit::kNormal},
          {"mlp.down_proj", c.hidden_size, c.intermediate_size, TensorInit::kNormalOutput}};
}

void extras_of_attention(const ModelConfig& c, const std::string& prefix, LayoutBuilder& build) {
  if (c.qkv_bias) {
    build.vector(prefix + "self_attn.q_proj.bias", c.query_size(), TensorInit::kZeros);
    for (const char* name : {"self_attn.k_proj.bias", "self_attn.v_proj.bias"})
      build.vector(prefix + name, c.kv_size(), TensorInit::kZeros);
  }
  if (c.head_norms)
    for (const char* name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
      build.vector(prefix + name, c.head_dim);
}

ArenaLayout full_layout(const ModelConfig& c) {
  LayoutBuilder build;
  build.matrix("model.embed_tokens.weight", c.vocab_size, c.hidden_size, TensorInit::kNormal);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    build.vector(prefix + "input_layernorm.weight", c.hidden_size);
    for (const Target& t : targets(c)) {
      if (t.name == std::string_view("self_attn.o_proj")) extras_of_attention(c, prefix, build);
      if (t.name == std::string_view("mlp.gate_proj"))
        build.vector(prefix + "post_attention_layernorm.weight", c.hidden_size);
      build.matrix(prefix + t.name + ".weight", t.out, t.in, t.init);
    }
  }
  build.vector("model.norm.weight", c.hidden_size);
  if (!c.tied_head)
    build.matrix("lm_head.weight", c.vocab_size, c.hidden_size, TensorInit::kNormal);
  return build.finish();
}

ArenaLayout lora_layout(const ModelConfig& c, std::int64_t rank) {
  LayoutBuilder build;
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    for (const Target& t : targets(c)) {
      const std::string prefix =
          "base_model.model.model.layers." + std::to_string(layer) + "." + t.name;
      build.matrix(prefix + ".lora_A.weight", rank, t.in, TensorInit::kNormalLoraA);
      build.matrix(prefix + ".lora_B.weight", t.out, rank, TensorInit::kZeros);
    }
  return build.finish();
}

}  // namespace

Result<ModelLayout> make_model_layout(const ModelConfig& config, TrainMode mode,
                                      std::uint32_t lora_rank, WeightType type) {
  const bool lora = mode == TrainMode::Lora;
  if (lora && (lora_rank < 1 || lora_rank > kMaxLoraRank))
    return error(Code::INVALID_ARGUMENT, "LoRA rank %u: must be 1 to %u", lora_rank, kMaxLoraRank);
  if (!lora && lora_rank != 0)
    return error(Code::INVALID_ARGUMENT, "LoRA rank %u: only mode lora has a rank", lora_rank);
  ModelLayout layout;
  layout.config = config;
  layout.mode = mode;
  layout.lora_rank = lora_rank;
  layout.type = type;
  layout.full = full_layout(config);
  if (lora) layout.trainable = lora_layout(config, lora_rank);
  if (mode == TrainMode::Full) layout.trainable = layout.full;
  return layout;
}

std::vector<SegmentBytes> segment_sizes(const ModelLayout& layout) {
  if (layout.mode == TrainMode::None)
    return {{SegmentKind::Base, layout.full.bytes_as(layout.type), false}};
  const std::uint64_t bytes = layout.trainable.bytes();
  // Adapters are float32 on any base.
  const bool full = layout.mode == TrainMode::Full;
  const std::uint64_t sampler = full ? layout.trainable.bytes_as(layout.type) : bytes;
  return {{SegmentKind::Weights, bytes, true},
          {SegmentKind::AdamM, bytes, true},
          {SegmentKind::AdamV, bytes, true},
          {SegmentKind::Gradients, bytes, false},
          {SegmentKind::SamplerWeights, sampler, true}};
}

std::uint64_t kv_bytes_per_position(const ModelConfig& config) {
  return static_cast<std::uint64_t>(config.layers * 2 * config.kv_size()) * sizeof(float);
}

Result<std::uint64_t> kv_bytes(const ModelConfig& config, const wire::GenerateArgsT& args) {
  const std::uint64_t most = kMaxKvBytes / kv_bytes_per_position(config);
  const std::uint64_t samples = args.samples_per_prompt;
  std::uint64_t positions = 0;
  for (const auto& prompt : args.prompts) {
    const std::uint64_t row =
        (prompt ? prompt->tokens.size() : 0) + std::uint64_t{args.max_new_tokens};
    if (samples != 0 && row > (most - positions) / samples)
      return error(Code::TOO_LARGE, "generate: the KV cache is beyond 2^48 bytes");
    positions += row * samples;
  }
  return positions * kv_bytes_per_position(config);
}

}  // namespace plexrl::model
