// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, as RFC 3720): finds damage, no protection
// against forgery. Three streams of the processor's instruction where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plexrl {

// Of `bytes`, continuing from the value of what came before.
[[nodiscard]] std::uint32_t crc32c(const std::byte* data, std::size_t bytes,
                                   std::uint32_t previous = 0) noexcept;
// Of two blocks one behind the other, from the value of each.
[[nodiscard]] std::uint32_t crc32c_join(std::uint32_t first, std::uint32_t second,
                                        std::size_t second_bytes) noexcept;
// As crc32c by a table, for processors without the instruction and as a reference.
[[nodiscard]] std::uint32_t crc32c_table(const std::byte* data, std::size_t bytes,
                                         std::uint32_t previous = 0) noexcept;

}  // namespace plexrl
