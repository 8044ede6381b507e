// SPDX-License-Identifier: Apache-2.0
// Protobuf's wire format, as much of it as the messages of the Tinker API need (doc/adr/0014):
// varints, fixed numbers, byte strings; no groups, no packed floats (these messages carry arrays as
// raw little-endian bytes). Views into the caller's bytes; pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plexrl::http {

// Walks the fields of one message. Linear; what a field holds is looked at by who reads it.
class ProtoReader {
 public:
  enum class Kind : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  explicit ProtoReader(std::string_view message) : left_(message) {}

  // To the next field. False at the end of the message, or where it is broken.
  [[nodiscard]] bool next();
  [[nodiscard]] bool broken() const { return broken_; }

  // Of the field that next() came to.
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is_bytes() const { return kind_ == Kind::kBytes; }
  [[nodiscard]] bool is_varint() const { return kind_ == Kind::kVarint; }
  [[nodiscard]] std::uint64_t value() const { return value_; }  // also the bits of fixed numbers
  [[nodiscard]] double as_double() const;                       // of a fixed64
  [[nodiscard]] std::string_view bytes() const { return bytes_; }

 private:
  bool read_varint(std::uint64_t* value);
  bool read_fixed(std::size_t size);
  bool stop_broken();

  std::string_view left_;
  std::string_view bytes_;
  std::uint64_t value_ = 0;
  std::uint32_t number_ = 0;
  Kind kind_ = Kind::kVarint;
  bool broken_ = false;
};

// Writes the fields of one message, in the order of the calls.
class ProtoWriter {
 public:
  void varint(std::uint32_t number, std::uint64_t value);
  void fixed(std::uint32_t number, double value);
  void bytes(std::uint32_t number, std::string_view value);
  [[nodiscard]] const std::string& message() const { return out_; }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  void raw_varint(std::uint64_t value);
  std::string out_;
};

}  // namespace plexrl::http
