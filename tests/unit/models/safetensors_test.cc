// SPDX-License-Identifier: Apache-2.0
// Headers that lie, beside those of checkpoint_test.cc.
#include "models/safetensors.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace plexrl::model {
namespace {

Result<SafetensorsFile> open_header(const std::string& header, std::uint64_t data_bytes,
                                    std::uint64_t said = UINT64_MAX) {
  static UniqueFd fd;
  fd.reset(::memfd_create("header", MFD_CLOEXEC));
  const std::uint64_t length = said == UINT64_MAX ? header.size() : said;
  EXPECT_EQ(::write(fd.get(), &length, sizeof length), 8);
  EXPECT_EQ(::write(fd.get(), header.data(), header.size()), static_cast<ssize_t>(header.size()));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(8 + header.size() + data_bytes)), 0);
  return SafetensorsFile::open(fd.get());
}

TEST(Safetensors, ClaimsOfATerabyte) {
  EXPECT_EQ(open_header("{}", 0, 1ULL << 40).error().code(), Code::CORRUPT);
  EXPECT_EQ(open_header("{}", 0, UINT64_MAX - 7).error().code(), Code::CORRUPT);
  const auto tensor = open_header(
      R"({"a":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}})", 16);
  EXPECT_EQ(tensor.error().code(), Code::CORRUPT);
  EXPECT_NE(tensor.error().text().find("truncated"), std::string::npos);
}

TEST(Safetensors, ProductsThatOverflow) {
  EXPECT_EQ(open_header(
                R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0)
                .error()
                .code(),
            Code::CORRUPT);
}

// 16 MiB of text can describe values that take a gigabyte.
TEST(Safetensors, AHugeHeaderTakesBoundedMemory) {
  const auto grows = [](const std::string& unit, const char* before, const char* behind) {
    std::string text = before;
    while (text.size() + unit.size() + 8 < kMaxSafetensorsHeader) text += unit;
    text += behind;
    const std::size_t start = ::mallinfo2().arena + ::mallinfo2().hblkhd;
    const auto opened = open_header(text, 0);
    EXPECT_FALSE(opened.has_value());
    EXPECT_LT(::mallinfo2().arena + ::mallinfo2().hblkhd, start + (96U << 20)) << unit;
    return opened.error().code();
  };
  EXPECT_EQ(grows("[],", R"({"a":[)", "0]}"), Code::CORRUPT);
  EXPECT_EQ(grows("0,", R"({"a":{"shape":[)", "0]}}"), Code::CORRUPT);
  EXPECT_EQ(grows("[", R"({"a":)", ""), Code::CORRUPT);
}

TEST(Safetensors, TooManyTensors) {
  std::string text = "{";
  for (int i = 0; i < 140'000; ++i) text += "\"t" + std::to_string(i) + "\":0,";
  text.back() = '}';
  EXPECT_EQ(open_header(text, 0).error().code(), Code::TOO_LARGE);
}

TEST(Safetensors, CoverIsAsked) {
  const char* const gap = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  const auto file = open_header(gap, 8);
  ASSERT_TRUE(file.has_value()) << file.error().to_string();
  EXPECT_NE(file->check_cover().text().find("byte 0 of the data"), std::string::npos);
  const auto more = open_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 6);
  ASSERT_TRUE(more.has_value());
  EXPECT_NE(more->check_cover().text().find("2 bytes behind"), std::string::npos);
  const auto good = open_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4);
  ASSERT_TRUE(good.has_value());
  EXPECT_TRUE(good->check_cover().ok());
}

}  // namespace
}  // namespace plexrl::model
