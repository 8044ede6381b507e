// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace plexrl::model {
namespace {

using nlohmann::json;

json small() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 32},
          {"hidden_size", 128},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", 384},
          {"max_position_embeddings", 64},
          {"tie_word_embeddings", true}};
}

Status parse_with(const char* key, json value) {
  json object = small();
  object[key] = std::move(value);
  return parse_model_config(object.dump()).error();
}

TEST(ModelConfig, ReadsALlamaFile) {
  const auto config = parse_model_config(small().dump());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->kv_size(), 64);
  EXPECT_TRUE(config->tied_head);
  EXPECT_DOUBLE_EQ(config->rope_theta, 10000.0);
}

TEST(ModelConfig, ExplicitHeadDimIsHonoured) {
  json object = small();
  object["head_dim"] = 48;
  const auto config = parse_model_config(object.dump());
  ASSERT_TRUE(config);
  EXPECT_EQ(config->query_size(), 192);
}

TEST(ModelConfig, KeyValueHeadsDefaultToHeads) {
  json object = small();
  object.erase("num_key_value_heads");
  EXPECT_EQ(parse_model_config(object.dump())->kv_heads, 4);
}

TEST(ModelConfig, NewStyleRopeParameters) {
  json object = small();
  object["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  EXPECT_DOUBLE_EQ(parse_model_config(object.dump())->rope_theta, 1e6);
  EXPECT_EQ(parse_with("rope_parameters", {{"rope_type", "yarn"}}).code(), Code::UNSUPPORTED);
}

json of_family(const char* type, const char* architecture) {
  json object = small();
  object["model_type"] = type;
  object["architectures"] = {architecture};
  return object;
}

TEST(ModelConfig, Qwen2HasBiasesAndNamesAWindowThatItDoesNotUse) {
  json object = of_family("qwen2", "Qwen2ForCausalLM");
  object["use_sliding_window"] = false;
  object["sliding_window"] = 32768;
  const auto config = parse_model_config(object.dump());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_TRUE(config->qkv_bias);
  EXPECT_FALSE(config->head_norms);
  object["use_sliding_window"] = true;
  EXPECT_EQ(parse_model_config(object.dump()).error().code(), Code::UNSUPPORTED);
}

TEST(ModelConfig, Qwen3HasHeadNormsAndAHeadDimOfItsOwn) {
  const json object = of_family("qwen3", "Qwen3ForCausalLM");
  const auto config = parse_model_config(object.dump());
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_TRUE(config->head_norms);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_EQ(config->head_dim, 128);
}

TEST(ModelConfig, OneNameOfTheFamilyIsEnough) {
  for (const char* key : {"model_type", "architectures"}) {
    json object = of_family("qwen3", "Qwen3ForCausalLM");
    object.erase(key);
    EXPECT_EQ(parse_model_config(object.dump())->family, Family::kQwen3) << "without " << key;
  }
}

TEST(ModelConfig, RopeScalingIsRead) {
  json object = small();
  object["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(parse_model_config(object.dump())->rope_scaling.kind, RopeScaling::Kind::kLinear);
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  object["rope_scaling"] = llama3;
  const RopeScaling want{RopeScaling::Kind::kLlama3, 32.0, 1.0, 4.0, 8192};
  EXPECT_EQ(parse_model_config(object.dump())->rope_scaling, want);
  object.erase("rope_scaling");
  object["rope_parameters"] = llama3;
  object["rope_parameters"]["rope_theta"] = 500000.0;
  EXPECT_EQ(parse_model_config(object.dump())->rope_scaling, want);
  EXPECT_DOUBLE_EQ(parse_model_config(object.dump())->rope_theta, 500000.0);
}

TEST(ModelConfig, DamagedRopeScalingIsNamed) {
  const json rows[] = {"linear",
                       {{"type", "linear"}},
                       {{"type", "linear"}, {"factor", 0.5}},
                       {{"type", "llama3"}, {"factor", 8.0}},
                       {{"type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 4.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}}};
  for (const json& row : rows)
    EXPECT_EQ(parse_with("rope_scaling", row).code(), Code::INVALID_ARGUMENT) << row;
}

TEST(ModelConfig, FormatAndParseAgree) {
  json stretched = small();
  stretched["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  json far = small();
  far["rope_scaling"] = {
      {"rope_type", "llama3"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}};
  for (const json& object : {small(), of_family("qwen2", "Qwen2ForCausalLM"),
                             of_family("qwen3", "Qwen3ForCausalLM"), stretched, far}) {
    const auto config = parse_model_config(object.dump());
    ASSERT_TRUE(config) << config.error().to_string();
    EXPECT_EQ(*parse_model_config(format_model_config(*config)), *config);
  }
}

TEST(ModelConfig, UnsupportedKeysAreNamed) {
  const std::pair<const char*, json> rows[] = {
      {"model_type", "mistral"},
      {"architectures", {"Qwen2ForCausalLM"}},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}},
      {"layer_types", {"full_attention", "sliding_attention"}},
      {"quantization_config", {{"bits", 4}}},
      {"sliding_window", 4096}};
  for (const auto& [key, value] : rows) {
    const Status status = parse_with(key, value);
    EXPECT_EQ(status.code(), Code::UNSUPPORTED) << key;
    EXPECT_NE(status.text().find(key), std::string::npos) << status.text();
  }
}

TEST(ModelConfig, HostileNumbersAreBounded) {
  const std::pair<const char*, json> rows[] = {
      {"vocab_size", 0},           {"vocab_size", -5},
      {"vocab_size", 1ULL << 63},  {"hidden_size", 1LL << 40},
      {"num_hidden_layers", 1e9},  {"num_attention_heads", "4"},
      {"num_key_value_heads", 3},  {"head_dim", 7},
      {"head_dim", 1 << 20},       {"max_position_embeddings", 1LL << 50},
      {"rms_norm_eps", -1.0},      {"rope_theta", 0.0},
      {"tie_word_embeddings", "x"}};
  for (const auto& [key, value] : rows)
    EXPECT_EQ(parse_with(key, value).code(), Code::INVALID_ARGUMENT) << key << " " << value;
}

TEST(ModelConfig, GarbageAndMissingKeys) {
  EXPECT_EQ(parse_model_config("{").error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(parse_model_config("[]").error().code(), Code::INVALID_ARGUMENT);
  json object = small();
  object.erase("hidden_size");
  EXPECT_NE(parse_model_config(object.dump()).error().text().find("hidden_size"),
            std::string::npos);
}

}  // namespace
}  // namespace plexrl::model
