// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "tokenizer/byte_alphabet.h"

namespace plexrl::tokenizer {
namespace {

TEST(Utf8, EveryCodePointComesBackAndNothingElseIsValid) {
  for (char32_t c = 1; c < 0x110000; ++c) {
    std::string text;
    append_utf8(&text, c);
    const Utf8Step step = utf8_step(text);
    if (c >= 0xD800 && c < 0xE000) {
      ASSERT_EQ(step.kind, Utf8::kInvalid) << std::uint32_t{c};
      continue;
    }
    ASSERT_EQ(step.kind, Utf8::kCharacter) << std::uint32_t{c};
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.bytes, text.size());
    for (std::size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(utf8_step(text.substr(0, cut)).kind, Utf8::kCutOff) << std::uint32_t{c};
  }
}

TEST(Utf8, OneReplacementForEachPartThatCouldHaveBegunACharacter) {
  // The Unicode Standard, table 3-8.
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(replace_invalid_utf8("a\xF4\x90z"), "a\uFFFD\uFFFDz");
}

TEST(Utf8, TheFirstInvalidByteIsNamed) {
  EXPECT_EQ(find_invalid_utf8("gr\u00FC\u00DFe"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xFF"), 2U);
  EXPECT_EQ(find_invalid_utf8("ab\xE2\x82"), 2U) << "cut off";
}

TEST(ByteAlphabet, EveryByteComesBackAndNoTwoAreAlike) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string written = to_byte_alphabet(all);
  std::string read;
  ASSERT_TRUE(from_byte_alphabet(written, &read));
  EXPECT_EQ(read, all);
  EXPECT_EQ(to_byte_alphabet(" \n\xAD"), "\u0120\u010A\u0143");
  EXPECT_FALSE(from_byte_alphabet("a b", &read)) << "a space is not of the alphabet";
}

}  // namespace
}  // namespace plexrl::tokenizer
