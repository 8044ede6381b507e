// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>

#include "small_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace plexrl::tokenizer {
namespace {

using nlohmann::json;

struct Broken {
  const char* name;
  std::function<void(json*)> change;
  Code code;
  const char* said;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenFile : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenFile, IsRefusedWithASentence) {
  json document = small_tokenizer({{"a", "b"}});
  ASSERT_TRUE(Tokenizer::from_json(document.dump()).has_value());
  GetParam().change(&document);
  const auto made = Tokenizer::from_json(document.dump());
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), GetParam().code) << made.error().to_string();
  EXPECT_NE(made.error().text().find(GetParam().said), std::string::npos) << made.error().text();
}

constexpr Code kBad = Code::INVALID_ARGUMENT;
constexpr Code kNot = Code::UNSUPPORTED;

INSTANTIATE_TEST_SUITE_P(
    All, BrokenFile,
    ::testing::Values(
        Broken{"no object", [](json* d) { *d = json::array(); }, kBad, "not an object"},
        Broken{"no model", [](json* d) { d->erase("model"); }, kBad, "'model' is missing"},
        Broken{"no vocabulary", [](json* d) { (*d)["model"].erase("vocab"); }, kBad, "vocab"},
        Broken{"no merges", [](json* d) { (*d)["model"].erase("merges"); }, kBad, "merges"},
        Broken{"vocabulary is a list", [](json* d) { (*d)["model"]["vocab"] = json::array(); },
               kBad, "not an object"},
        Broken{"id above the limit", [](json* d) { (*d)["model"]["vocab"]["zz"] = 1LL << 40; },
               kBad, "1099511627776"},
        Broken{"negative id", [](json* d) { (*d)["model"]["vocab"]["zz"] = -1; }, kBad, "id -1"},
        Broken{"id is text", [](json* d) { (*d)["model"]["vocab"]["zz"] = "1"; }, kBad, "integer"},
        Broken{"id twice", [](json* d) { (*d)["model"]["vocab"]["zz"] = 97; }, kBad, "id 97"},
        Broken{"merge of strangers", [](json* d) { (*d)["model"]["merges"].push_back("a zz"); },
               kBad, "merge 1 is of tokens"},
        Broken{"merge of one", [](json* d) { (*d)["model"]["merges"].push_back("ab"); }, kBad,
               "not two tokens"},
        Broken{"merge of three",
               [](json* d) {
                 (*d)["model"]["merges"].push_back({"a", "b", "c"});
               },
               kBad, "not two tokens"},
        Broken{"other model", [](json* d) { (*d)["model"]["type"] = "Unigram"; }, kNot, "Unigram"},
        Broken{"byte_fallback", [](json* d) { (*d)["model"]["byte_fallback"] = true; }, kNot,
               "byte_fallback"},
        Broken{"suffix", [](json* d) { (*d)["model"]["end_of_word_suffix"] = "</w>"; }, kNot,
               "</w>"},
        Broken{"dropout", [](json* d) { (*d)["model"]["dropout"] = 0.1; }, kNot, "dropout"},
        Broken{"unknown token", [](json* d) { (*d)["model"]["unk_token"] = "<unk>"; }, kBad,
               "unk_token"},
        Broken{"other normalizer",
               [](json* d) {
                 (*d)["normalizer"] = {{"type", "NFKC"}};
               },
               kNot, "NFKC"},
        Broken{"other pre-tokenizer",
               [](json* d) {
                 (*d)["pre_tokenizer"] = {{"type", "Metaspace"}};
               },
               kNot, "Metaspace"},
        Broken{"no pre-tokenizer", [](json* d) { (*d)["pre_tokenizer"] = nullptr; }, kNot, "none"},
        Broken{"pattern of nonsense",
               [](json* d) {
                 (*d)["pre_tokenizer"] = {{"type", "Split"},
                                          {"behavior", "Isolated"},
                                          {"pattern", {{"Regex", "(unclosed"}}}};
               },
               kBad, "pattern, at byte"},
        Broken{"pattern that removes",
               [](json* d) {
                 (*d)["pre_tokenizer"] = {
                     {"type", "Split"}, {"behavior", "Removed"}, {"pattern", {{"Regex", "a"}}}};
               },
               kNot, "Removed"},
        Broken{"other post-processor",
               [](json* d) {
                 (*d)["post_processor"] = {{"type", "BertProcessing"}};
               },
               kNot, "BertProcessing"},
        Broken{"other decoder",
               [](json* d) {
                 (*d)["decoder"] = {{"type", "WordPiece"}};
               },
               kNot, "WordPiece"},
        Broken{"added token without text", [](json* d) { add_token(d, 300, ""); }, kBad,
               "added token 300"},
        Broken{"added token without id",
               [](json* d) {
                 (*d)["added_tokens"].push_back({{"content", "x"}});
               },
               kBad, "no id"},
        Broken{"template of a stranger",
               [](json* d) {
                 (*d)["post_processor"] = {{"type", "TemplateProcessing"},
                                           {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}},
                                           {"special_tokens", json::object()}};
               },
               kBad, "no ids"},
        Broken{"template of an id that is not there",
               [](json* d) {
                 (*d)["post_processor"] = {{"type", "TemplateProcessing"},
                                           {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}},
                                           {"special_tokens", {{"<s>", {{"ids", {9999}}}}}}};
               },
               kBad, "token 9999 of the template"}));

TEST(TokenizerJson, TextThatIsNotJson) {
  for (const char* const text : {"", "{", "\"a\"", "{\"model\":", "[[[[[[", "\xFF\xFE"})
    EXPECT_EQ(Tokenizer::from_json(text).error().code(), Code::INVALID_ARGUMENT) << text;
  EXPECT_EQ(Tokenizer::from_json(std::string(1U << 20, '[')).error().code(),
            Code::INVALID_ARGUMENT);
  const std::string large((64U << 20) + 1, ' ');
  EXPECT_NE(Tokenizer::from_json(large).error().text().find("at most"), std::string::npos);
}

TEST(TokenizerJson, MergesAreStringsInOldFilesAndPairsInNewOnes) {
  json document = small_tokenizer({{"a", "b"}});
  const auto pairs = Tokenizer::from_json(document.dump()).value()->encode("ab").value();
  document["model"]["merges"] = {"a b"};
  EXPECT_EQ(Tokenizer::from_json(document.dump()).value()->encode("ab").value(), pairs);
  EXPECT_EQ(pairs, std::vector<TokenId>{256});
}

// A pattern that takes exponential time ends with an error, at its limit.
TEST(TokenizerJson, APatternThatWouldNeverEnd) {
  json document = small_tokenizer({});
  document["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a+)+$"}}}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto tokenizer = Tokenizer::from_json(document.dump()).value();
  const auto ids = tokenizer->encode(std::string(64, 'a') + "b");
  EXPECT_EQ(ids.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(ids.error().text().find("splitting"), std::string::npos) << ids.error().text();
}

TEST(TokenizerJson, DigitsAndPrefixSpace) {
  json document = small_tokenizer({{"1", "2"}, {" ", "1"}});
  document["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers",
                                {{{"type", "Digits"}, {"individual_digits", true}},
                                 {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
  const auto apart = Tokenizer::from_json(document.dump()).value();
  EXPECT_EQ(apart->encode("12").value(), (std::vector<TokenId>{'1', '2'}));
  document["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  const auto prefixed = Tokenizer::from_json(document.dump()).value();
  EXPECT_EQ(prefixed->encode("1").value(), (std::vector<TokenId>{257}));
  EXPECT_EQ(prefixed->encode(" 1").value(), (std::vector<TokenId>{257}));
}

}  // namespace
}  // namespace plexrl::tokenizer
