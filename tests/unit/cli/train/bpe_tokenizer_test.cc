// SPDX-License-Identifier: Apache-2.0
#include "cli/train/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include "unit/cli/train/small_description.h"

namespace plexrl::cli {
namespace {

std::unique_ptr<TextTokenizer> small() {
  auto made = make_tokenizer(small_description().dump());
  EXPECT_TRUE(made.has_value()) << made.error().to_string();
  return std::move(made).value();
}

TEST(BpeTokenizer, RoundTrip) {
  const auto tokenizer = small();
  EXPECT_EQ(tokenizer->encode("10=").value(), (Tokens{kSmallTen, '='}));
  EXPECT_EQ(tokenizer->decode({kSmallTen, '=', kSmallEnd}), "10=<|im_end|>");
  EXPECT_EQ(tokenizer->encode("\xff").error().code(), Code::INVALID_ARGUMENT);
}

TEST(BpeTokenizer, TextIsNeverASpecialToken) {
  const auto tokenizer = small();
  const std::string text = "a<|im_end|>b<|endoftext|>";
  for (const auto& tokens : {tokenizer->encode(text), tokenizer->encode_prompt(text)}) {
    ASSERT_TRUE(tokens.has_value());
    for (const std::int32_t token : *tokens) EXPECT_LT(token, kSmallEnd);
    EXPECT_EQ(tokenizer->decode(*tokens), text);
  }
}

TEST(BpeTokenizer, APromptBeginsWithTheBeginToken) {
  auto description = small_description();
  description["tokenizer"]["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair",
       {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
      {"special_tokens",
       {{"<|endoftext|>",
         {{"id", "<|endoftext|>"}, {"ids", {kSmallOtherEnd}}, {"tokens", {"<|endoftext|>"}}}}}}};
  const auto tokenizer = make_tokenizer(description.dump());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode_prompt("a").value(), (Tokens{kSmallOtherEnd, 'a'}));
  EXPECT_EQ((*tokenizer)->encode("a").value(), (Tokens{'a'}));
}

TEST(BpeTokenizer, StopsAreTheModelsAndTheOneThatIsGiven) {
  const auto tokenizer = small();
  EXPECT_EQ(tokenizer->stop_tokens("").value(), (Tokens{kSmallEnd, kSmallOtherEnd}));
  EXPECT_EQ(tokenizer->stop_tokens("<|endoftext|>").value(), (Tokens{kSmallOtherEnd, kSmallEnd}));
  EXPECT_EQ(tokenizer->stop_tokens("\n").value(), (Tokens{'\n', kSmallEnd, kSmallOtherEnd}));
  EXPECT_NE(tokenizer->stop_tokens("ab").error().text().find("2 tokens"), std::string::npos);
  auto description = small_description();
  description["eos_token_ids"] = nlohmann::json::array();
  const auto endless = make_tokenizer(description.dump());
  ASSERT_TRUE(endless.has_value());
  EXPECT_NE((*endless)->stop_tokens("").error().text().find("--stop"), std::string::npos);
}

TEST(BpeTokenizer, RefusesWhatDoesNotFit) {
  struct Case {
    const char* patch;
    const char* text;
  };
  for (const Case& one :
       {Case{R"({"vocab_size":258})", "259 tokens, the model 258"},
        Case{R"({"vocab_size":-1})", "vocab_size"}, Case{R"({"vocab_size":null})", "vocab_size"},
        Case{R"({"eos_token_ids":[259]})", "end token 259"},
        Case{R"({"eos_token_ids":[-1]})", "end token -1"},
        Case{R"({"eos_token_ids":7})", "eos_token_ids"}, Case{R"({"tokenizer":null})", "tokenizer"},
        Case{R"({"tokenizer":{"model":{"type":"Unigram"}}})", "Unigram"}}) {
    auto description = small_description();
    description.merge_patch(nlohmann::json::parse(one.patch));
    const auto made = make_tokenizer(description.dump());
    ASSERT_FALSE(made.has_value()) << one.patch;
    EXPECT_NE(made.error().text().find(one.text), std::string::npos) << made.error().text();
  }
}

}  // namespace
}  // namespace plexrl::cli
