// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace plexrl {
namespace {

const std::byte* bytes_of(const void* at) { return static_cast<const std::byte*>(at); }

TEST(Crc32c, KnownValues) {
  constexpr std::string_view kDigits = "123456789";
  EXPECT_EQ(crc32c(bytes_of(kDigits.data()), kDigits.size()), 0xE3069283U);
  EXPECT_EQ(crc32c_table(bytes_of(kDigits.data()), kDigits.size()), 0xE3069283U);
  // RFC 3720, B.4: 32 bytes of zeros, of ones, ascending.
  std::vector<unsigned char> block(32, 0);
  EXPECT_EQ(crc32c(bytes_of(block.data()), 32), 0x8A9136AAU);
  block.assign(32, 0xFF);
  EXPECT_EQ(crc32c(bytes_of(block.data()), 32), 0x62A8AB43U);
  for (unsigned char i = 0; i < 32; ++i) block[i] = i;
  EXPECT_EQ(crc32c(bytes_of(block.data()), 32), 0x46DD794EU);
  EXPECT_EQ(crc32c(nullptr, 0), 0U);
}

TEST(Crc32c, TheFastOneIsTheTableForEveryLengthAndAlignment) {
  std::mt19937_64 random(5);
  std::vector<unsigned char> data(70000);
  for (auto& byte : data) byte = static_cast<unsigned char>(random());
  std::vector<std::size_t> lengths = {3071, 3072, 3073, 4095, 4096, 24576, 65536, 65543};
  for (std::size_t length = 0; length < 100; ++length) lengths.push_back(length);
  for (const std::size_t length : lengths)
    for (const std::size_t at : {0U, 1U, 7U})
      ASSERT_EQ(crc32c(bytes_of(data.data() + at), length),
                crc32c_table(bytes_of(data.data() + at), length))
          << length << " bytes at " << at;
}

TEST(Crc32c, PartsAreAsTheWhole) {
  std::vector<unsigned char> data(10000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 31);
  const std::uint32_t whole = crc32c(bytes_of(data.data()), data.size());
  for (const std::size_t cut : {0U, 1U, 4000U, 9999U, 10000U}) {
    const std::uint32_t head = crc32c(bytes_of(data.data()), cut);
    EXPECT_EQ(crc32c(bytes_of(data.data() + cut), data.size() - cut, head), whole);
    const std::uint32_t tail = crc32c(bytes_of(data.data() + cut), data.size() - cut);
    EXPECT_EQ(crc32c_join(head, tail, data.size() - cut), whole);
  }
}

}  // namespace
}  // namespace plexrl
