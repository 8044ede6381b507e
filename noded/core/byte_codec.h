// SPDX-License-Identifier: Apache-2.0
// Little-endian bytes with variable-length integers (7 bits a byte, low first), for snapshots, the
// journal and stored manifests. The reader is safe on hostile input: it never reads past the end,
// and after the first error it answers zeros and stays failed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace plexrl::core {

// CRC-32 (IEEE 802.3, reflected, 0xEDB88320). Finds damage; no protection against forgery.
[[nodiscard]] std::uint32_t crc32(std::string_view bytes, std::uint32_t previous = 0);

class ByteWriter {
 public:
  void u8(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void flag(bool value) { u8(value ? 1 : 0); }
  void u32(std::uint32_t value);  // 4 bytes
  void varint(std::uint64_t value);
  void text(std::string_view value);  // length, then the bytes
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}
  [[nodiscard]] std::uint8_t u8();
  [[nodiscard]] bool flag();  // anything but 0 and 1 is an error
  [[nodiscard]] std::uint32_t u32();
  [[nodiscard]] std::uint64_t varint();
  // A number of things that follow, each at least one byte long: never more than bytes are left.
  [[nodiscard]] std::uint64_t count();
  [[nodiscard]] std::string_view text();  // points into the input
  void fail() { failed_ = true; }
  [[nodiscard]] bool ok() const { return !failed_; }
  [[nodiscard]] bool at_end() const { return !failed_ && left_.empty(); }
  [[nodiscard]] std::size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
  bool failed_ = false;
};

// A varint of 0 .. 2^60 ns (36 years); more is damage, and sums with times cannot overflow.
[[nodiscard]] Duration decode_duration(ByteReader& in);

}  // namespace plexrl::core
