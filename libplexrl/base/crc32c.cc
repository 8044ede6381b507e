// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace plexrl {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}
constexpr auto kTable = make_table();

// State of the register, that is, without the inversion before and after.
std::uint32_t update_table(std::uint32_t state, const std::byte* data, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; ++i)
    state = state >> 8 ^ kTable[(state ^ std::to_integer<std::uint32_t>(data[i])) & 0xFF];
  return state;
}

// Polynomials over GF(2) of degree below 32, modulo the CRC's; bit 31 is x^0.
std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 1U << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = b >> 1 ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

// x^(8 * bytes): a state times this is the state after so many zero bytes.
std::uint32_t shift_by(std::size_t bytes) noexcept {
  std::uint32_t power = 1U << 23;  // x^8
  std::uint32_t result = 1U << 31;
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

#if defined(__x86_64__)

std::uint64_t word_at(const std::byte* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The instruction takes 3 cycles and one can start in each, so three streams run at once.
__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::uint32_t state,
                                                             const std::byte* data,
                                                             std::size_t bytes) noexcept {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  constexpr std::size_t kWorthSplitting = 3072;
  if (bytes >= kWorthSplitting) {
    const std::size_t part = bytes / 3 / kWord * kWord;
    std::uint64_t first = state;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t at = 0; at < part; at += kWord) {
      first = _mm_crc32_u64(first, word_at(data + at));
      second = _mm_crc32_u64(second, word_at(data + part + at));
      third = _mm_crc32_u64(third, word_at(data + 2 * part + at));
    }
    const std::uint32_t shift = shift_by(part);
    state = multiply(static_cast<std::uint32_t>(first), shift) ^ static_cast<std::uint32_t>(second);
    state = multiply(state, shift) ^ static_cast<std::uint32_t>(third);
    data += 3 * part;
    bytes -= 3 * part;
  }
  std::uint64_t wide = state;
  for (; bytes >= kWord; bytes -= kWord, data += kWord) wide = _mm_crc32_u64(wide, word_at(data));
  state = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; --bytes, ++data)
    state = _mm_crc32_u8(state, std::to_integer<std::uint8_t>(*data));
  return state;
}

#endif

}  // namespace

std::uint32_t crc32c(const std::byte* data, std::size_t bytes, std::uint32_t previous) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~update_sse42(~previous, data, bytes);
#endif
  return crc32c_table(data, bytes, previous);
}

std::uint32_t crc32c_join(std::uint32_t first, std::uint32_t second,
                          std::size_t second_bytes) noexcept {
  return multiply(first, shift_by(second_bytes)) ^ second;
}

std::uint32_t crc32c_table(const std::byte* data, std::size_t bytes,
                           std::uint32_t previous) noexcept {
  return ~update_table(~previous, data, bytes);
}

}  // namespace plexrl
