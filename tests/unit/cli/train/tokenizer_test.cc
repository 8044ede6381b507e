// SPDX-License-Identifier: Apache-2.0
#include "cli/train/tokenizer.h"

#include <gtest/gtest.h>

namespace plexrl::cli {
namespace {

TEST(Tokenizer, RoundTrip) {
  const auto tokenizer =
      CharTokenizer::parse(R"({"type":"char","alphabet":"0123456789+=>;ab?","vocab_size":32})");
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(tokenizer->encode("37+58=").value(), (Tokens{3, 7, 10, 5, 8, 11}));
  EXPECT_EQ(tokenizer->decode({5, 9, 0, 13}), "590;");
}

TEST(Tokenizer, IdsWithoutACharacterAreVisible) {
  const auto tokenizer = CharTokenizer::parse(R"({"type":"char","alphabet":"ab","vocab_size":32})");
  EXPECT_EQ(tokenizer->decode({0, 31, -1}), "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Tokenizer, UnknownCharactersAreNamed) {
  const auto tokenizer =
      CharTokenizer::parse(R"({"type":"char","alphabet":"abé","vocab_size":32})");
  EXPECT_EQ(tokenizer->encode("é").value(), (Tokens{2}));
  EXPECT_NE(tokenizer->encode("abc").error().text().find("'c'"), std::string::npos);
  EXPECT_EQ(tokenizer->encode("\xff").error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(tokenizer->encode("a\xc3").error().code(), Code::INVALID_ARGUMENT);
}

TEST(Tokenizer, RefusesBadDescriptions) {
  for (const char* text :
       {"", "[]", "{}", R"({"type":1})", R"({"type":"char"})", R"({"type":"char","alphabet":""})",
        R"({"type":"char","alphabet":"aa"})"})
    EXPECT_EQ(CharTokenizer::parse(text).error().code(), Code::INVALID_ARGUMENT) << text;
  EXPECT_EQ(make_tokenizer(R"({"type":"bpe"})").error().code(), Code::UNSUPPORTED);
  for (const char* text : {"", "[]", "{}", R"({"type":1})"})
    EXPECT_EQ(make_tokenizer(text).error().code(), Code::INVALID_ARGUMENT) << text;
}

TEST(Tokenizer, TheStopOfCharactersIsOne) {
  const auto tokenizer =
      CharTokenizer::parse(R"({"type":"char","alphabet":"ab;|","vocab_size":4})");
  EXPECT_EQ(tokenizer->stop_tokens("").value(), (Tokens{2}));
  EXPECT_EQ(tokenizer->stop_tokens("|").value(), (Tokens{3}));
  EXPECT_NE(tokenizer->stop_tokens("ab").error().text().find("exactly one character"),
            std::string::npos);
  EXPECT_NE(tokenizer->stop_tokens("c").error().text().find("--stop 'c'"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::cli
