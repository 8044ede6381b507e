// SPDX-License-Identifier: Apache-2.0
// 16-bit floating point to float, exactly, and back, to the nearest and of two equally near ones
// to the even: IEEE 754 binary16 and bfloat16.
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

[[nodiscard]] inline std::uint16_t to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// Too large becomes infinity.
[[nodiscard]] inline std::uint16_t to_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (size >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (size < 0x38800000U) {  // below the least normal one: a whole number of 2^-24
    // The addition rounds: the sum's last bit is worth 2^-24.
    const float sum = std::bit_cast<float>(size) + 0x1p-1F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000U));
  }
  const std::uint32_t rounded = size + 0xfffU + (size >> 13 & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

}  // namespace plexrl::model
