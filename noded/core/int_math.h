// SPDX-License-Identifier: Apache-2.0
// Products of two 64-bit numbers, exact. The core's decisions use integers only.
#pragma once

#include <cstdint>

namespace plexrl::core {

__extension__ using Wide = unsigned __int128;

// a * b / c, at most 2^64 - 1; c must not be 0.
[[nodiscard]] constexpr std::uint64_t mul_div(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const Wide result = Wide{a} * b / c;
  return result > ~std::uint64_t{0} ? ~std::uint64_t{0} : static_cast<std::uint64_t>(result);
}

}  // namespace plexrl::core
