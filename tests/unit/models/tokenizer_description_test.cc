// SPDX-License-Identifier: Apache-2.0
#include "models/tokenizer_description.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace plexrl::model {
namespace {

using nlohmann::json;

class TokenizerDescriptionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "plexrl-describe-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    write("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":0,"</s>":1}},)"
                            R"("added_tokens":[{"id":2,"content":"<|im_end|>"}]})");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << text;
  }
  json described() {
    const auto text = describe_tokenizer(directory_, 7);
    EXPECT_TRUE(text.has_value()) << text.error().to_string();
    return text.has_value() ? json::parse(*text) : json();
  }

  std::string directory_;
};

TEST_F(TokenizerDescriptionTest, NoneWithoutTokenizerJson) {
  std::filesystem::remove(directory_ + "/tokenizer.json");
  write("tokenizer_config.json", "{}");
  EXPECT_EQ(describe_tokenizer(directory_, 7).value(), "");
}

TEST_F(TokenizerDescriptionTest, HoldsTheFileAndTheSize) {
  const json made = described();
  EXPECT_EQ(made["type"], "tokenizer.json");
  EXPECT_EQ(made["vocab_size"], 7);
  EXPECT_EQ(made["tokenizer"]["model"]["vocab"]["a"], 0);
  EXPECT_EQ(made["eos_token_ids"], json::array());
  EXPECT_FALSE(made.contains("chat_template"));
}

TEST_F(TokenizerDescriptionTest, EndTokensAreThoseThatTheFilesName) {
  write("config.json", R"({"eos_token_id":5})");
  EXPECT_EQ(described()["eos_token_ids"], json::array({5}));
  write("generation_config.json", R"({"eos_token_id":[2,6,2]})");
  EXPECT_EQ(described()["eos_token_ids"], json::array({2, 6}));
  write("generation_config.json", R"({"eos_token_id":null})");
  EXPECT_EQ(described()["eos_token_ids"], json::array({5}));
  write("tokenizer_config.json", R"({"eos_token":{"content":"<|im_end|>"}})");
  EXPECT_EQ(described()["eos_token_ids"], json::array({2, 5}));
  EXPECT_EQ(described()["tokens"], json::object({{"eos_token", "<|im_end|>"}}));
  write("tokenizer_config.json", R"({"eos_token":"</s>","bos_token":null})");
  EXPECT_EQ(described()["eos_token_ids"], json::array({1, 5}));
}

TEST_F(TokenizerDescriptionTest, TheChatTemplateIsOfTheNewestFile) {
  write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"t"},)"
                                 R"({"name":"default","template":"d"}]})");
  EXPECT_EQ(described()["chat_template"], "d");
  write("tokenizer_config.json", R"({"chat_template":"s"})");
  EXPECT_EQ(described()["chat_template"], "s");
  write("chat_template.jinja", "j\xff");
  EXPECT_EQ(described()["chat_template"], "j\xEF\xBF\xBD");
}

TEST_F(TokenizerDescriptionTest, BrokenFilesAreNamed) {
  struct Case {
    const char* file;
    const char* text;
  };
  for (const Case& one : {Case{"tokenizer.json", "{"}, Case{"tokenizer.json", "[]"},
                          Case{"tokenizer_config.json", "1"}, Case{"generation_config.json", ""},
                          Case{"generation_config.json", R"({"eos_token_id":"x"})"},
                          Case{"config.json", R"({"eos_token_id":[1.5]})"}}) {
    TearDown();
    SetUp();
    write(one.file, one.text);
    const auto made = describe_tokenizer(directory_, 7);
    EXPECT_EQ(made.error().code(), Code::CORRUPT) << one.file << " " << one.text;
    EXPECT_NE(made.error().text().find(one.file), std::string::npos) << made.error().text();
  }
}

TEST_F(TokenizerDescriptionTest, HugeAndOddFilesAreRefusedUnread) {
  std::filesystem::resize_file(directory_ + "/tokenizer.json", std::uintmax_t{1} << 40);
  EXPECT_EQ(describe_tokenizer(directory_, 7).error().code(), Code::TOO_LARGE);
  std::filesystem::remove(directory_ + "/tokenizer.json");
  std::filesystem::create_directory(directory_ + "/tokenizer.json");
  EXPECT_EQ(describe_tokenizer(directory_, 7).error().code(), Code::TOO_LARGE);
}

}  // namespace
}  // namespace plexrl::model
