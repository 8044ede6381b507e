// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.h"

#include <gtest/gtest.h>

namespace plexrl::wire {
namespace {

using Header = std::array<std::uint8_t, kHeaderBytes>;

Code parse_code(const Header& bytes, const Limits& limits = {}) {
  return parse_header(bytes, limits).error().code();
}

TEST(FrameHeader, RoundTrip) {
  const auto parsed = parse_header(encode_header({70'000, 3}), Limits{});
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->payload_bytes, 70'000U);
  EXPECT_EQ(parsed->fd_count, 3U);
}

TEST(FrameHeader, BytesOnTheWireAreFixed) {
  const Header expected = {'P', 'X', 'R', 'L', 1, 0, 1, 0, 0x02, 0x01, 0, 0, 1, 0};
  EXPECT_EQ(encode_header({0x0102, 1}), expected);
}

TEST(FrameHeader, EveryFixedByteIsChecked) {
  for (const std::size_t at : {0, 1, 2, 3, 4, 5, 6, 7, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}) {
    Header bytes = encode_header({1, 0});
    bytes[at] ^= 0x80;
    EXPECT_EQ(parse_code(bytes), Code::PROTOCOL) << "byte " << at;
  }
}

TEST(FrameHeader, PayloadLimitIsInclusive) {
  const Limits limits{.max_payload_bytes = 100};
  EXPECT_EQ(parse_code(encode_header({100, 0}), limits), Code::OK);
  EXPECT_EQ(parse_code(encode_header({101, 0}), limits), Code::TOO_LARGE);
  EXPECT_EQ(parse_code(encode_header({0xffffffff, 0}), limits), Code::TOO_LARGE);
}

TEST(FrameHeader, EmptyPayloadIsRefused) {
  EXPECT_EQ(parse_code(encode_header({0, 0})), Code::PROTOCOL);
}

TEST(FrameHeader, FdCountIsLimited) {
  EXPECT_EQ(parse_code(encode_header({1, 2}), {.max_fds = 1}), Code::PROTOCOL);
  EXPECT_EQ(parse_code(encode_header({1, 1}), {.max_fds = 1}), Code::OK);
  EXPECT_EQ(parse_code(encode_header({1, kMaxFrameFds + 1}), {.max_fds = 100}), Code::PROTOCOL);
}

TEST(FrameHeader, VersionMismatchSaysWhatToDo) {
  Header bytes = encode_header({1, 0});
  bytes[4] = 2;
  EXPECT_EQ(parse_header(bytes, Limits{}).error().text(),
            "frame: version 2, this side speaks 1: use one release on both");
}

}  // namespace
}  // namespace plexrl::wire
