// SPDX-License-Identifier: Apache-2.0
#include "models/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plexrl::model {
namespace {

// Of the 65,536 halves each comes back, and between two neighbours the nearer one is taken.
template <class To, class From>
void round_trip(To to, From from, std::uint16_t infinity) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = from(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from(to(value)))) << bits;
      continue;
    }
    ASSERT_EQ(to(value), half) << value;
    if ((half & 0x7fffU) >= infinity - 1U) continue;
    const auto next = static_cast<std::uint16_t>(half + 1);
    const float middle = static_cast<float>((double{value} + from(next)) / 2);
    ASSERT_EQ(to(middle), half % 2 == 0 ? half : next) << value;
    ASSERT_EQ(to(std::nextafter(middle, value)), half) << value;
    ASSERT_EQ(to(std::nextafter(middle, from(next))), next) << value;
  }
}

TEST(Half, RoundsToTheNearest) { round_trip(to_half, from_half, 0x7c00); }
TEST(Half, Bfloat16RoundsToTheNearest) { round_trip(to_bfloat16, from_bfloat16, 0x7f80); }

TEST(Half, TooLargeIsInfinite) {
  EXPECT_EQ(to_half(65519.0F), 0x7bff);
  EXPECT_EQ(to_half(65520.0F), 0x7c00);
  EXPECT_EQ(to_half(-1e30F), 0xfc00);
  EXPECT_EQ(to_half(INFINITY), 0x7c00);
}

}  // namespace
}  // namespace plexrl::model
