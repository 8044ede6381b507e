// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "small_tokenizer.h"

namespace plexrl::tokenizer {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

std::shared_ptr<const Tokenizer> made(const json& document) {
  auto tokenizer = Tokenizer::from_json(document.dump());
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  return *std::move(tokenizer);
}

Ids encode(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text,
           EncodeOptions options = {}) {
  auto ids = tokenizer->encode(text, options);
  EXPECT_TRUE(ids.has_value()) << ids.error().to_string();
  return ids.value_or(Ids());
}

Ids bytes(std::string_view text) {
  Ids ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

TEST(Tokenizer, MergesDoNotReachAcrossWords) {
  const auto tokenizer = made(small_tokenizer({{"a", "b"}, {" ", "a"}, {"b", " "}}));
  EXPECT_EQ(encode(tokenizer, "ab ab"), (Ids{256, 32, 256}));
  EXPECT_EQ(encode(tokenizer, "a a"), (Ids{97, 257}));
  EXPECT_EQ(encode(tokenizer, ""), Ids());
}

// 'x' of `marks`: the byte came from outside.
Ids marked(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text,
           std::string marks) {
  for (char& mark : marks) mark = mark == 'x' ? '\1' : '\0';
  auto ids = tokenizer->encode_marked(text, marks);
  EXPECT_TRUE(ids.has_value()) << ids.error().to_string();
  return ids.value_or(Ids());
}

TEST(Tokenizer, ASpecialTokenHasNoByteFromOutside) {
  json document = small_tokenizer({{"a", "b"}});
  add_token(&document, 257, "<e>");
  add_token(&document, 258, "<e><f>");
  add_token(&document, 259, "<t>", {{"special", false}});
  const auto tokenizer = made(document);
  EXPECT_EQ(marked(tokenizer, "a<e>", "x..."), (Ids{97, 257}));
  EXPECT_EQ(marked(tokenizer, "a<e>", "xxxx"), bytes("a<e>"));
  EXPECT_EQ(marked(tokenizer, "<e>", "..x"), bytes("<e>"));
  EXPECT_EQ(marked(tokenizer, "<e>", "x.."), bytes("<e>"));
  // The shorter one, of which all bytes are the template's.
  EXPECT_EQ(marked(tokenizer, "<e><f>", "......"), (Ids{258}));
  EXPECT_EQ(marked(tokenizer, "<e><f>", "...xxx"), (Ids{257, 60, 102, 62}));
  // Words and merges go on from the template's text into a user's.
  EXPECT_EQ(marked(tokenizer, "ab", ".x"), (Ids{256}));
  // A token that is not special is a part of what a user may write.
  EXPECT_EQ(marked(tokenizer, "<t>", "xxx"), (Ids{259}));
}

TEST(Tokenizer, MarksSurviveNormalisation) {
  json document = small_tokenizer({});
  document["normalizer"] = {{"type", "NFC"}};
  add_token(&document, 256, "<e>", {{"normalized", true}});
  const auto tokenizer = made(document);
  EXPECT_EQ(marked(tokenizer, "<e><e>", "...xxx"), (Ids{256, 60, 101, 62}));
  // e and a combining acute accent become one character, and the marks are of other bytes.
  const auto moved = tokenizer->encode_marked("e\xcc\x81<e>", std::string("\1\1\1\0\0\0", 6));
  ASSERT_FALSE(moved.has_value());
  EXPECT_EQ(moved.error().code(), Code::UNSUPPORTED);
}

TEST(Tokenizer, TheWordsAreThoseOfGpt2) {
  json document = small_tokenizer({});
  document["model"]["ignore_merges"] = true;
  int id = 256;
  // Each word is a token, so its id says where the text was cut.
  for (const char* const word : {"I", "'ll", " pay", " 12", ",", " \t", " x", "  ", "\n"})
    document["model"]["vocab"].emplace(to_byte_alphabet(word), id++);
  const auto tokenizer = made(document);
  EXPECT_EQ(encode(tokenizer, "I'll pay 12, \t x  \n"),
            (Ids{73, 257, 258, 259, 44, 261, 262, 32, 32, 10}));
  EXPECT_EQ(encode(tokenizer, "I  x"), (Ids{73, 32, 262}));
}

TEST(Tokenizer, SpecialTokensAreFoundLongestFirstAndOnlyWhereTheyMay) {
  json document = small_tokenizer({});
  add_token(&document, 300, "<|im|>");
  add_token(&document, 301, "<|im|>user");
  add_token(&document, 302, "tool", {{"special", false}});
  const auto tokenizer = made(document);
  EXPECT_EQ(encode(tokenizer, "<|im|>user<|im|>u"), (Ids{301, 300, 'u'}));
  EXPECT_EQ(encode(tokenizer, "<|im|>", {.add_special = true, .parse_special = false}),
            bytes("<|im|>"))
      << "what a user writes is text";
  EXPECT_EQ(encode(tokenizer, "tool", {.add_special = true, .parse_special = false}), (Ids{302}));
  EXPECT_EQ(tokenizer->decode(Ids{300, 'h', 'i', 302}), "<|im|>hitool");
  EXPECT_EQ(tokenizer->decode(Ids{300, 'h', 'i', 302}, true), "hitool");
  EXPECT_TRUE(tokenizer->is_special(301));
  EXPECT_FALSE(tokenizer->is_special(302));
  EXPECT_EQ(tokenizer->id_of_added("<|im|>user"), 301);
  EXPECT_EQ(tokenizer->id_of_added("user"), std::nullopt);
  EXPECT_EQ(tokenizer->vocabulary(), 303U);
}

TEST(Tokenizer, FlagsOfAddedTokens) {
  json document = small_tokenizer({});
  add_token(&document, 300, "<l>", {{"lstrip", true}});
  add_token(&document, 301, "<r>", {{"rstrip", true}});
  add_token(&document, 302, "word", {{"single_word", true}});
  const auto tokenizer = made(document);
  EXPECT_EQ(encode(tokenizer, "a \t\u3000<l> b"), (Ids{'a', 300, ' ', 'b'}));
  EXPECT_EQ(encode(tokenizer, "a <r> \n b"), (Ids{'a', ' ', 301, 'b'}));
  EXPECT_EQ(encode(tokenizer, "word,"), (Ids{302, ','}));
  EXPECT_EQ(encode(tokenizer, "words"), bytes("words"));
  EXPECT_EQ(encode(tokenizer, "\u00E9word"), bytes("\u00E9word"));
}

TEST(Tokenizer, NormalisesWhatIsNotATokenOfItsOwn) {
  json document = small_tokenizer({});
  document["normalizer"] = {{"type", "NFC"}};
  add_token(&document, 300, "<e\u0301>");
  add_token(&document, 301, "[e\u0301]", {{"normalized", true}});
  const auto tokenizer = made(document);
  EXPECT_EQ(encode(tokenizer, "e\u0301"), bytes("\u00E9"));
  EXPECT_EQ(encode(tokenizer, "<e\u0301>"), (Ids{300}));
  EXPECT_EQ(encode(tokenizer, "<\u00E9>"), bytes("<\u00E9>")) << "only as it is written";
  EXPECT_EQ(encode(tokenizer, "[\u00E9]"), (Ids{301}));
}

TEST(Tokenizer, TheTemplateIsPutAround) {
  json document = small_tokenizer({});
  add_token(&document, 300, "<s>");
  add_token(&document, 301, "</s>");
  document["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
        {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"<s>", {{"ids", {300}}}}, {"</s>", {{"ids", {301}}}}}}};
  const auto tokenizer = made(document);
  EXPECT_EQ(encode(tokenizer, "a"), (Ids{300, 'a', 301}));
  EXPECT_EQ(encode(tokenizer, "a", {.add_special = false, .parse_special = true}), (Ids{'a'}));
}

TEST(Tokenizer, ACharacterAppearsWhenItsLastByteHasCome) {
  const auto tokenizer = made(small_tokenizer({}));
  TokenStream stream(tokenizer);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push(0xAC), "\u20AC");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push('b'), "\uFFFDb") << "the character will not be completed";
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, IdsThatAreNotThereAreReplaced) {
  const auto tokenizer = made(small_tokenizer({}));
  EXPECT_EQ(tokenizer->decode(Ids{-1, 'a', 256, INT32_MAX}), "\uFFFDa\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer->bytes_of(-1), "");
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefusedByOffset) {
  const auto tokenizer = made(small_tokenizer({}));
  const auto ids = tokenizer->encode("ab\xC3");
  EXPECT_EQ(ids.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(ids.error().text().find("byte 2"), std::string::npos) << ids.error().text();
}

TEST(Tokenizer, AZeroByteIsAByte) {
  const auto tokenizer = made(small_tokenizer({}));
  const std::string text("a\0b", 3);
  EXPECT_EQ(encode(tokenizer, text), bytes(text));
  EXPECT_EQ(tokenizer->decode(bytes(text)), text);
}

// Each of these would take minutes if the time grew with the square of the text.
TEST(Tokenizer, AnythingOfFourMegabytes) {
  json document = small_tokenizer({{"a", "b"}, {" ", " "}});
  add_token(&document, 300, "<|" + std::string(200, '<') + "|>");
  const auto tokenizer = made(document);
  constexpr std::size_t kSize = 4U << 20;
  EXPECT_EQ(encode(tokenizer, std::string(kSize, 'x')).size(), kSize);
  EXPECT_EQ(encode(tokenizer, std::string(kSize, ' ')).size(), kSize / 2);
  EXPECT_EQ(encode(tokenizer, std::string(kSize, '<')).size(), kSize);
  std::string words;
  while (words.size() < kSize) words += "ab ";
  EXPECT_EQ(encode(tokenizer, words).size(), words.size() / 3 * 2);
}

}  // namespace
}  // namespace plexrl::tokenizer
