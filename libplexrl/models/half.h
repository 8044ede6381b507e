// SPDX-License-Identifier: Apache-2.0
// 16-bit floating point to float: IEEE 754 binary16 and bfloat16. Exact.
#pragma once

#include <bit>
#include <cstdint>

namespace plexrl::model {

[[nodiscard]] inline float from_half(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

[[nodiscard]] inline float from_bfloat16(std::uint16_t value) noexcept {
  return std::bit_cast<float>(std::uint32_t{value} << 16);
}

}  // namespace plexrl::model
