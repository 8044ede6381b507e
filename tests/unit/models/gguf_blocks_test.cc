// SPDX-License-Identifier: Apache-2.0
// Small blocks by hand; check-interop compares random ones with the `gguf` package.
#include "models/gguf_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "models/half.h"

namespace plexrl::model {
namespace {

std::vector<float> unpacked(GgufType type, const std::vector<unsigned>& bytes) {
  std::vector<std::byte> block;
  for (const unsigned byte : bytes) block.push_back(static_cast<std::byte>(byte));
  EXPECT_EQ(block.size(), block_of(type).bytes);
  std::vector<float> values(block_of(type).elements);
  dequantize(type, block, values);
  return values;
}

// 0x3800 is 0.5 and 0xC000 is -2 in binary16.
TEST(GgufBlocks, Q4) {
  std::vector<unsigned> bytes = {0x00, 0x38};
  for (unsigned i = 0; i < 16; ++i) bytes.push_back(i | (15 - i) << 4U);
  const auto signed_values = unpacked(GgufType::kQ4_0, bytes);
  bytes.insert(bytes.begin() + 2, {0x00, 0xC0});
  const auto offset_values = unpacked(GgufType::kQ4_1, bytes);
  for (int i = 0; i < 16; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(signed_values[at], 0.5F * static_cast<float>(i - 8));
    EXPECT_EQ(signed_values[at + 16], 0.5F * static_cast<float>(15 - i - 8));
    EXPECT_EQ(offset_values[at], 0.5F * static_cast<float>(i) - 2);
    EXPECT_EQ(offset_values[at + 16], 0.5F * static_cast<float>(15 - i) - 2);
  }
}

// The fifth bit of every third number is set.
TEST(GgufBlocks, Q5) {
  std::vector<unsigned> bytes = {0x00, 0x38, 0x49, 0x92, 0x24, 0x49};
  for (unsigned i = 0; i < 16; ++i) bytes.push_back(i | (15 - i) << 4U);
  const auto signed_values = unpacked(GgufType::kQ5_0, bytes);
  bytes.insert(bytes.begin() + 2, {0x00, 0xC0});
  const auto offset_values = unpacked(GgufType::kQ5_1, bytes);
  for (int i = 0; i < 32; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const float quant = static_cast<float>((i < 16 ? i : 31 - i) + (i % 3 == 0 ? 16 : 0));
    EXPECT_EQ(signed_values[at], 0.5F * (quant - 16)) << i;
    EXPECT_EQ(offset_values[at], 0.5F * quant - 2) << i;
  }
}

TEST(GgufBlocks, Q8) {
  std::vector<unsigned> bytes = {0x00, 0x38};
  for (unsigned i = 0; i < 32; ++i) bytes.push_back((i * 8 + 3) & 0xFFU);
  const auto values = unpacked(GgufType::kQ8_0, bytes);
  for (unsigned i = 0; i < 32; ++i)
    EXPECT_EQ(values[i], 0.5F * static_cast<float>(static_cast<std::int8_t>(i * 8 + 3)));
}

// Scales 1 to 8 and minima 8 to 15, packed as in the source.
TEST(GgufBlocks, Q4K) {
  std::vector<unsigned> bytes = {0x00, 0x38, 0x00, 0x3C, 1, 2, 3, 4, 8, 9, 10, 11};
  for (unsigned i = 0; i < 4; ++i) bytes.push_back((5 + i) | (12 + i) << 4U);
  for (unsigned i = 0; i < 128; ++i) bytes.push_back(7 | 5U << 4U);
  const auto values = unpacked(GgufType::kQ4_K, bytes);
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned part = i / 32;
    const float quant = part % 2 == 0 ? 7 : 5;
    EXPECT_EQ(values[i], 0.5F * static_cast<float>(part + 1) * quant - static_cast<float>(part + 8))
        << i;
  }
}

// As Q4K, and the fifth bit of the odd parts is set.
TEST(GgufBlocks, Q5K) {
  std::vector<unsigned> bytes = {0x00, 0x38, 0x00, 0x3C, 1, 2, 3, 4, 8, 9, 10, 11};
  for (unsigned i = 0; i < 4; ++i) bytes.push_back((5 + i) | (12 + i) << 4U);
  bytes.insert(bytes.end(), 32, 0b10101010);
  for (unsigned i = 0; i < 128; ++i) bytes.push_back(7 | 5U << 4U);
  const auto values = unpacked(GgufType::kQ5_K, bytes);
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned part = i / 32;
    const float quant = part % 2 == 0 ? 7 : 5 + 16;
    EXPECT_EQ(values[i], 0.5F * static_cast<float>(part + 1) * quant - static_cast<float>(part + 8))
        << i;
  }
}

TEST(GgufBlocks, Q6K) {
  std::vector<unsigned> bytes(128, 0x21);
  bytes.insert(bytes.end(), 64, 0b11100100);  // upper bits 0, 1, 2, 3 of the four runs
  for (unsigned i = 0; i < 16; ++i) bytes.push_back((i - 8) & 0xFFU);
  bytes.insert(bytes.end(), {0x00, 0x3C});
  const auto values = unpacked(GgufType::kQ6_K, bytes);
  for (int i = 0; i < 256; ++i) {
    const int run = i / 32 % 4;
    const int quant = (run < 2 ? 1 : 2) + 16 * run - 32;
    EXPECT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>((i / 16 - 8) * quant)) << i;
  }
}

TEST(GgufBlocks, HalfPrecision) {
  EXPECT_EQ(from_half(0x3C00), 1.0F);
  EXPECT_EQ(from_half(0x8001), -0x1p-24F) << "the least below zero";
  EXPECT_EQ(from_half(0x7BFF), 65504.0F);
  EXPECT_EQ(from_half(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(from_half(0x7E00)));
  EXPECT_EQ(from_bfloat16(0xC040), -3.0F);
}

TEST(GgufBlocks, AnotherTypeIsRefusedWithThoseThatAreRead) {
  const auto type = gguf_type(10);
  EXPECT_EQ(type.error().code(), Code::UNSUPPORTED);
  EXPECT_NE(type.error().text().find("Q4_K"), std::string::npos);
  EXPECT_EQ(gguf_type(14).value(), GgufType::kQ6_K);
}

}  // namespace
}  // namespace plexrl::model
