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

TEST(ModelConfig, FormatAndParseAgree) {
  const auto config = parse_model_config(small().dump());
  EXPECT_EQ(*parse_model_config(format_model_config(*config)), *config);
}

TEST(ModelConfig, UnsupportedKeysAreNamed) {
  const std::pair<const char*, json> rows[] = {
      {"model_type", "qwen2"},
      {"architectures", {"MistralForCausalLM"}},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
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
