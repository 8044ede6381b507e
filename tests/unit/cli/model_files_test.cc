// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace plexrl::cli {
namespace {

class ModelFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "plexrl-model-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    write("config.json", R"({"hidden_size":4,"num_hidden_layers":1,"intermediate_size":8})");
    write("plexrl_tokenizer.json", R"({"type":"char","alphabet":"ab"})");
    entry_.name = "demo";
    entry_.path = directory_;
    entry_.hidden_size = 4;
    entry_.layers = 1;
    entry_.intermediate_size = 8;
    entry_.parameters = 6;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << text;
  }
  static std::string safetensors(const std::string& header, std::size_t data_bytes) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xFF);
    return text + header + std::string(data_bytes, '\0');
  }
  Result<SafetensorsFacts> check(const std::string& content) {
    write("model.safetensors", content);
    return check_safetensors(directory_ + "/model.safetensors");
  }

  static constexpr const char* kGood =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}})";
  std::string directory_;
  config::ModelEntry entry_;
};

TEST_F(ModelFilesTest, AGoodFile) {
  const auto facts = check(safetensors(kGood, 20));
  ASSERT_TRUE(facts.has_value()) << facts.error().to_string();
  EXPECT_EQ(facts->tensors, 2U);
  EXPECT_EQ(facts->parameters, 6U);
}

TEST_F(ModelFilesTest, ATruncatedFileIsNamed) {
  const auto facts = check(safetensors(kGood, 19));
  EXPECT_EQ(facts.error().code(), Code::CORRUPT);
  EXPECT_NE(facts.error().text().find("truncated"), std::string::npos);
}

TEST_F(ModelFilesTest, HostileHeaders) {
  for (const std::string& content :
       {std::string(), std::string("1234567"), std::string(8, '\xff') + "x", safetensors("[]", 0),
        safetensors("{", 0), safetensors(R"({"a":7})", 0),
        safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
        safetensors(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
        safetensors(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", 8),
        safetensors(
            R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}})", 0),
        safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
        safetensors(R"({"a":{"dtype":"F32","shape":[1]}})", 4)}) {
    EXPECT_EQ(check(content).error().code(), Code::CORRUPT) << content;
  }
}

TEST_F(ModelFilesTest, OverlappingTensors) {
  const auto facts = check(safetensors(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
      6));
  EXPECT_NE(facts.error().text().find("overlap"), std::string::npos);
}

TEST_F(ModelFilesTest, AnUnknownDtypeIsUnsupported) {
  EXPECT_EQ(check(safetensors(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,1]}})", 1))
                .error()
                .code(),
            Code::UNSUPPORTED);
}

TEST_F(ModelFilesTest, AGoodModel) {
  write("model.safetensors", safetensors(kGood, 20));
  const ModelCheck result = check_model(entry_);
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
}

TEST_F(ModelFilesTest, ShardsOfAnIndex) {
  write("one.safetensors", safetensors(kGood, 20));
  write("model.safetensors.index.json",
        R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  EXPECT_TRUE(check_model(entry_).problems.empty());
  write("model.safetensors.index.json", R"({"weight_map":{"a":"../one.safetensors"}})");
  EXPECT_EQ(check_model(entry_).problems.size(), 1U);
}

TEST_F(ModelFilesTest, DisagreementWithTheSiteFileIsReported) {
  write("model.safetensors", safetensors(kGood, 20));
  entry_.hidden_size = 5;
  entry_.layers = 2;
  EXPECT_EQ(check_model(entry_).problems.size(), 2U);
  entry_.hidden_size = 4;
  entry_.layers = 1;
  entry_.parameters = 7;
  ASSERT_EQ(check_model(entry_).problems.size(), 1U);
  EXPECT_NE(check_model(entry_).problems[0].find("6 parameters"), std::string::npos);
}

TEST_F(ModelFilesTest, AMissingDirectoryReportsEverything) {
  entry_.path = directory_ + "/none";
  EXPECT_EQ(check_model(entry_).problems.size(), 3U);
}

}  // namespace
}  // namespace plexrl::cli
