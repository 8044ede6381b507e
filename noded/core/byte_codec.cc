// SPDX-License-Identifier: Apache-2.0
#include "core/byte_codec.h"

#include <array>

namespace plexrl::core {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t index = 0; index < table.size(); ++index) {
    std::uint32_t value = index;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
    table[index] = value;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t previous) {
  std::uint32_t value = ~previous;
  for (const char byte : bytes)
    value = (value >> 8) ^ kCrcTable[(value ^ static_cast<std::uint8_t>(byte)) & 0xff];
  return ~value;
}

void ByteWriter::u32(std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) u8(static_cast<std::uint8_t>(value >> shift));
}

void ByteWriter::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) u8(static_cast<std::uint8_t>(value | 0x80));
  u8(static_cast<std::uint8_t>(value));
}

void ByteWriter::text(std::string_view value) {
  varint(value.size());
  bytes_.append(value);
}

std::uint8_t ByteReader::u8() {
  if (failed_ || left_.empty()) {
    failed_ = true;
    return 0;
  }
  const auto value = static_cast<std::uint8_t>(left_.front());
  left_.remove_prefix(1);
  return value;
}

bool ByteReader::flag() {
  const std::uint8_t value = u8();
  if (value > 1) failed_ = true;
  return value == 1;
}

std::uint32_t ByteReader::u32() {
  std::uint32_t value = 0;
  for (int shift = 0; shift < 32; shift += 8) value |= std::uint32_t{u8()} << shift;
  return failed_ ? 0 : value;
}

std::uint64_t ByteReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::uint8_t byte = u8();
    if (failed_) return 0;
    value |= std::uint64_t{byte & 0x7fu} << shift;
    // The tenth byte holds one bit; more would be lost.
    if (shift == 63 && byte > 1) break;
    if ((byte & 0x80) == 0) return value;
  }
  failed_ = true;
  return 0;
}

std::uint64_t ByteReader::count() {
  const std::uint64_t value = varint();
  if (value > left_.size()) failed_ = true;
  return failed_ ? 0 : value;
}

std::string_view ByteReader::text() {
  const std::uint64_t size = count();
  if (failed_) return {};
  const std::string_view value = left_.substr(0, size);
  left_.remove_prefix(size);
  return value;
}

Duration decode_duration(ByteReader& in) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 60;
  const std::uint64_t ns = in.varint();
  if (ns > kLongest) in.fail();
  return Duration{in.ok() ? static_cast<std::int64_t>(ns) : 0};
}

}  // namespace plexrl::core
