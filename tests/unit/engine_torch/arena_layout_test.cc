// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/arena_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace plexrl::model {
namespace {

ModelConfig demo() {
  ModelConfig c;
  c.vocab_size = 32, c.hidden_size = 128, c.layers = 3, c.heads = 4, c.kv_heads = 2;
  c.head_dim = 32, c.intermediate_size = 384, c.max_positions = 64, c.tied_head = true;
  return c;
}

void expect_sound(const ArenaLayout& layout) {
  std::uint64_t end = 0;
  for (const TensorSlot& slot : layout.slots) {
    EXPECT_EQ(slot.offset % 64, 0U) << slot.name;
    EXPECT_GE(slot.offset, end) << slot.name;
    end = slot.offset + slot.elements();
  }
  EXPECT_GE(layout.elements, end);
  EXPECT_EQ(layout.bytes() % 4096, 0U);
}

TEST(ArenaLayout, FullModelHasTheKnownParameterCount) {
  const auto layout = make_model_layout(demo(), wire::TrainMode::Full, 0);
  ASSERT_TRUE(layout);
  expect_sound(layout->trainable);
  EXPECT_EQ(layout->trainable.parameters, 594816U);  // counted by hand
  EXPECT_EQ(layout->full.slots.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(layout->full.slots.back().name, "model.norm.weight");
}

TEST(ArenaLayout, UntiedHeadIsATensorOfItsOwn) {
  ModelConfig config = demo();
  config.tied_head = false;
  EXPECT_EQ(make_model_layout(config, wire::TrainMode::Full, 0)->full.slots.back().name,
            "lm_head.weight");
}

TEST(ArenaLayout, BiasesAndHeadNormsStandBeforeTheOutputProjection) {
  const auto names = [](ModelConfig config) {
    std::vector<std::string> found;
    const std::string prefix = "model.layers.0.self_attn.";
    const auto layout = make_model_layout(config, wire::TrainMode::Full, 0);
    expect_sound(layout->full);
    for (const TensorSlot& slot : layout->full.slots)
      if (slot.name.rfind(prefix, 0) == 0) found.push_back(slot.name.substr(prefix.size()));
    return found;
  };
  using Names = std::vector<std::string>;
  ModelConfig qwen2 = demo();
  qwen2.qkv_bias = true;
  EXPECT_EQ(names(qwen2), (Names{"q_proj.weight", "k_proj.weight", "v_proj.weight", "q_proj.bias",
                                 "k_proj.bias", "v_proj.bias", "o_proj.weight"}));
  ModelConfig qwen3 = demo();
  qwen3.head_norms = true;
  EXPECT_EQ(names(qwen3), (Names{"q_proj.weight", "k_proj.weight", "v_proj.weight", "q_norm.weight",
                                 "k_norm.weight", "o_proj.weight"}));
  EXPECT_EQ(make_model_layout(qwen3, wire::TrainMode::Full, 0)->full.parameters,
            594816U + 3 * 2 * 32);
}

TEST(ArenaLayout, AdapterHasAandBForSevenTargets) {
  const auto layout = make_model_layout(demo(), wire::TrainMode::Lora, 8);
  ASSERT_TRUE(layout);
  expect_sound(layout->trainable);
  EXPECT_EQ(layout->trainable.slots.size(), 3U * 7 * 2);
  EXPECT_EQ(layout->trainable.slots[0].name,
            "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(layout->trainable.parameters, 58368U);  // counted by hand
  EXPECT_FLOAT_EQ(layout->lora_scale(), 4.0F);
}

TEST(ArenaLayout, RanksAreChecked) {
  EXPECT_EQ(make_model_layout(demo(), wire::TrainMode::Lora, 0).error().code(),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(make_model_layout(demo(), wire::TrainMode::Lora, 257).error().code(),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(make_model_layout(demo(), wire::TrainMode::Full, 8).error().code(),
            Code::INVALID_ARGUMENT);
}

TEST(ArenaLayout, SegmentsOfEachMode) {
  const auto base = segment_sizes(*make_model_layout(demo(), wire::TrainMode::None, 0));
  ASSERT_EQ(base.size(), 1U);
  EXPECT_EQ(base[0].kind, wire::SegmentKind::Base);
  const auto full = segment_sizes(*make_model_layout(demo(), wire::TrainMode::Full, 0));
  EXPECT_EQ(full.size(), 5U);
  EXPECT_EQ(full[0].bytes, base[0].bytes);
  EXPECT_EQ(std::count_if(full.begin(), full.end(), [](auto& s) { return !s.committed; }), 1);
}

TEST(ArenaLayout, KvBytesCountEveryRowAndAreBounded) {
  EXPECT_EQ(kv_bytes_per_position(demo()), 3U * 2 * 64 * 4);
  wire::GenerateArgsT args;
  args.prompts.push_back(std::make_unique<wire::PromptT>());
  args.prompts.back()->tokens = {1, 2, 3};
  args.samples_per_prompt = 5, args.max_new_tokens = 7;
  EXPECT_EQ(*kv_bytes(demo(), args), 5U * 10 * kv_bytes_per_position(demo()));
  args.samples_per_prompt = UINT32_MAX, args.max_new_tokens = UINT32_MAX;
  EXPECT_EQ(kv_bytes(demo(), args).error().code(), Code::TOO_LARGE);
}

}  // namespace
}  // namespace plexrl::model
