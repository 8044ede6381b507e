// SPDX-License-Identifier: Apache-2.0
#include "models/model_export.h"

#include <sys/stat.h>

#include <fstream>

#include "models/adapter.h"
#include "models/checksums.h"
#include "small_model.h"

namespace plexrl::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint32_t kRank = 2;

class ModelExportTest : public ::testing::Test {
 protected:
  ModelExportTest() {
    config_ = *parse_model_config(small_config().dump());
    adapter_ = numbers_for(adapter_tensors(config_, kRank), 100);
    write_tensor_file(
        dir_ / "lora.safetensors", adapter_tensors(config_, kRank), adapter_, DType::kF32,
        {{"format", "pt"}, {"plexrl_mode", "lora"}, {"plexrl_rank", "2"}, {"plexrl_alpha", "32"}});
  }
  Result<ExportedModel> merge(std::optional<DType> dtype = {}) {
    return merge_adapter({from_, dir_ / "base", dir_ / "out", dtype, shapes()}, go_on_);
  }
  Result<ExportedModel> peft() {
    return export_peft({dir_ / "lora.safetensors", "/models/base", dir_ / "peft", {}, {}}, go_on_);
  }
  [[nodiscard]] std::vector<TensorShape> shapes() const {
    std::vector<TensorShape> all;
    for (const ModelTensor& one : base_tensors(config_)) all.push_back({one.name, one.shape()});
    return all;
  }
  // W + 16 B A in double precision.
  [[nodiscard]] Weights expected(Weights weights) const {
    for (const ModelTensor& one : base_tensors(config_)) {
      const std::string module = kAdapterPrefix + one.name.substr(0, one.name.rfind('.'));
      const auto a = adapter_.find(module + ".lora_A.weight");
      if (a == adapter_.end()) continue;
      const auto& b = adapter_.at(module + ".lora_B.weight");
      for (std::int64_t row = 0; row < one.rows; ++row)
        for (std::int64_t col = 0; col < one.cols; ++col) {
          double sum = 0;
          for (std::int64_t r = 0; r < std::int64_t{kRank}; ++r)
            sum += double{b[static_cast<std::size_t>(row * kRank + r)]} *
                   a->second[static_cast<std::size_t>(r * one.cols + col)];
          weights[one.name][static_cast<std::size_t>(row * one.cols + col)] +=
              static_cast<float>(16 * sum);
        }
    }
    return weights;
  }
  void edit_adapter_config(const char* key, const json& value) {
    json config = json::parse(read_bytes(dir_ / "peft/adapter_config.json"));
    config[key] = value;
    write_bytes(dir_ / "peft/adapter_config.json", config.dump());
  }
  static void expect_near(const Weights& got, const Weights& want, float part) {
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, values] : want)
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], values[i], part * std::max(1.0F, std::abs(values[i]))) << name;
  }

  TemporaryDirectory dir_;
  ModelConfig config_;
  Weights adapter_;
  std::string from_ = dir_ / "lora.safetensors";
  ExportProgress go_on_ = [](std::uint64_t, std::uint64_t) { return true; };
};

TEST_F(ModelExportTest, MergesIntoABaseOfShards) {
  const Weights base = write_small_model(dir_ / "base", DType::kF32, true);
  write_bytes(dir_ / "base/tokenizer_config.json", "{\"a\":1}");
  const auto made = merge();
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  expect_near(read_weights(dir_ / "out/model.safetensors"), expected(base), 1e-6F);
  EXPECT_EQ(read_bytes(dir_ / "out/tokenizer_config.json"), "{\"a\":1}");
  EXPECT_EQ(json::parse(read_bytes(dir_ / "out/config.json")), small_config());
  EXPECT_EQ(read_checksums(dir_ / "out")->size(), 4U);
  EXPECT_FALSE(fs::exists(dir_ / "out/model.safetensors.index.json"));
}

TEST_F(ModelExportTest, KeepsTheTypeOfTheBaseOrTakesAnother) {
  const Weights base = write_small_model(dir_ / "base", DType::kBF16);
  EXPECT_EQ(merge()->dtype, DType::kBF16);
  EXPECT_EQ(json::parse(read_bytes(dir_ / "out/config.json"))["torch_dtype"], "bfloat16");
  const Weights want = expected(base);
  for (const auto& [name, values] : read_weights(dir_ / "out/model.safetensors"))
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(to_bfloat16(values[i]), to_bfloat16(want.at(name)[i])) << name;
  fs::remove_all(dir_ / "out");
  EXPECT_EQ(merge(DType::kF16)->dtype, DType::kF16);
  fs::remove_all(dir_ / "out");
  EXPECT_EQ(merge(DType::kF32)->dtype, DType::kF32);
  expect_near(read_weights(dir_ / "out/model.safetensors"), want, 1e-6F);
}

TEST_F(ModelExportTest, APeftDirectoryMergesToTheSame) {
  const Weights base = write_small_model(dir_ / "base");
  const auto made = peft();
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  EXPECT_EQ(read_weights(dir_ / "peft/adapter_model.safetensors"), adapter_);
  const json config = json::parse(read_bytes(dir_ / "peft/adapter_config.json"));
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["lora_alpha"], 32);
  EXPECT_EQ(config["base_model_name_or_path"], "/models/base");
  EXPECT_EQ(config["target_modules"].size(), 7U);
  from_ = dir_ / "peft";
  ASSERT_TRUE(merge().has_value());
  expect_near(read_weights(dir_ / "out/model.safetensors"), expected(base), 1e-6F);
}

TEST_F(ModelExportTest, WhatWouldBeMergedWronglyIsRefused) {
  write_small_model(dir_ / "base");
  ASSERT_TRUE(peft().has_value());
  from_ = dir_ / "peft";
  for (const auto& [key, value] : std::map<std::string, json>{{"use_dora", true},
                                                              {"bias", "all"},
                                                              {"fan_in_fan_out", true},
                                                              {"rank_pattern", {{"q", 4}}},
                                                              {"modules_to_save", {"lm_head"}},
                                                              {"peft_type", "IA3"}}) {
    const std::string before = read_bytes(dir_ / "peft/adapter_config.json");
    edit_adapter_config(key.c_str(), value);
    const auto refused = merge();
    EXPECT_EQ(refused.error().code(), Code::UNSUPPORTED) << key;
    EXPECT_NE(refused.error().text().find(key), std::string::npos);
    write_bytes(dir_ / "peft/adapter_config.json", before);
  }
  edit_adapter_config("r", 3);
  EXPECT_EQ(merge().error().code(), Code::CORRUPT);
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(ModelExportTest, AnAdapterOfAnotherModelIsRefused) {
  write_small_model(dir_ / "base");
  json larger = small_config();
  larger["num_hidden_layers"] = 3;
  const auto tensors = adapter_tensors(*parse_model_config(larger.dump()), kRank);
  write_tensor_file(from_, tensors, numbers_for(tensors, 1), DType::kF32,
                    {{"plexrl_mode", "lora"}, {"plexrl_rank", "2"}, {"plexrl_alpha", "32"}});
  const auto refused = merge();
  EXPECT_EQ(refused.error().code(), Code::UNSUPPORTED);
  EXPECT_NE(refused.error().text().find("model.layers.2"), std::string::npos);
}

TEST_F(ModelExportTest, AFullModelGetsItsBasesConfiguration) {
  write_small_model(dir_ / "base");
  const auto tensors = base_tensors(config_);
  const Weights trained = numbers_for(tensors, 77);
  write_tensor_file(dir_ / "full.safetensors", tensors, trained, DType::kF32,
                    {{"format", "pt"}, {"plexrl_mode", "full"}});
  EXPECT_EQ(*saved_kind(dir_ / "full.safetensors"), SavedKind::kFull);
  EXPECT_EQ(*saved_kind(dir_ / "lora.safetensors"), SavedKind::kAdapter);
  std::ofstream(dir_ / "run.ckpt") << R"({"state":{"grpo_done":6}})";
  const Status state = saved_kind(dir_ / "run.ckpt").error();
  EXPECT_EQ(state.code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(state.text().find("run.ckpt.STEP.safetensors"), std::string::npos) << state.text();
  EXPECT_EQ(saved_kind(dir_ / "base/model.safetensors").error().code(), Code::INVALID_ARGUMENT);
  ASSERT_EQ(::mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(saved_kind(dir_ / "fifo").has_value()) << "and does not wait for a writer";
  const auto made = export_full(
      {dir_ / "full.safetensors", dir_ / "base", dir_ / "out", DType::kBF16, shapes()}, go_on_);
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  EXPECT_EQ(read_weights(dir_ / "out/model.safetensors"), trained);
  EXPECT_EQ(json::parse(read_bytes(dir_ / "out/config.json"))["torch_dtype"], "bfloat16");
  EXPECT_TRUE(fs::exists(dir_ / "out/plexrl_tokenizer.json"));
}

TEST_F(ModelExportTest, ANumberBeyondFloat16IsRefused) {
  Weights base = write_small_model(dir_ / "base");
  base["model.norm.weight"][0] = 1e6F;
  write_tensor_file(dir_ / "base/model.safetensors", base_tensors(config_), base, DType::kF32, {});
  const auto refused = merge(DType::kF16);
  EXPECT_EQ(refused.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(refused.error().text().find("model.norm.weight"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir_ / "out.partial"));
}

TEST_F(ModelExportTest, NothingIsLeftOfACancelledMerge) {
  write_small_model(dir_ / "base");
  go_on_ = [](std::uint64_t, std::uint64_t) { return false; };
  EXPECT_EQ(merge().error().code(), Code::CANCELLED);
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  EXPECT_FALSE(fs::exists(dir_ / "out.partial"));
}

}  // namespace
}  // namespace plexrl::model
