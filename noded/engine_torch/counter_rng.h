// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A number is a pure function of (key, counter): no state, any order, any
// thread.
#pragma once

#include <array>
#include <cstdint>

namespace plexrl::model {

using PhiloxBlock = std::array<std::uint32_t, 4>;

[[nodiscard]] constexpr PhiloxBlock philox(std::uint64_t key, PhiloxBlock counter) noexcept {
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Uniform in (0, 1), 53 bits, never 0 or 1.
[[nodiscard]] constexpr double uniform53(std::uint32_t high, std::uint32_t low) noexcept {
  const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 12;  // 52 bits
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace plexrl::model
