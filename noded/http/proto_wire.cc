// SPDX-License-Identifier: Apache-2.0
#include "http/proto_wire.h"

#include <bit>
#include <cstring>

namespace plexrl::http {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr int kMaxVarintBytes = 10;

std::uint64_t key(std::uint32_t number, ProtoReader::Kind kind) {
  return std::uint64_t{number} << 3 | static_cast<std::uint64_t>(kind);
}

}  // namespace

bool ProtoReader::stop_broken() {
  broken_ = true;
  left_ = {};
  return false;
}

bool ProtoReader::read_varint(std::uint64_t* value) {
  *value = 0;
  for (int i = 0; i < kMaxVarintBytes && !left_.empty(); ++i) {
    const auto byte = static_cast<unsigned char>(left_.front());
    left_.remove_prefix(1);
    *value |= std::uint64_t{byte & 0x7fU} << (7 * i);
    if (byte < 0x80) return true;
  }
  return false;
}

bool ProtoReader::read_fixed(std::size_t size) {
  if (left_.size() < size) return false;
  std::memcpy(&value_, left_.data(), size);
  left_.remove_prefix(size);
  return true;
}

bool ProtoReader::next() {
  if (left_.empty()) return false;
  std::uint64_t head = 0;
  if (!read_varint(&head) || head >> 3 == 0 || head >> 3 > 0x1fffffff) return stop_broken();
  number_ = static_cast<std::uint32_t>(head >> 3);
  kind_ = static_cast<Kind>(head & 7U);
  value_ = 0;
  bytes_ = {};
  switch (kind_) {
    case Kind::kVarint:
      return read_varint(&value_) || stop_broken();
    case Kind::kFixed64:
      return read_fixed(8) || stop_broken();
    case Kind::kFixed32:
      return read_fixed(4) || stop_broken();
    case Kind::kBytes: {
      std::uint64_t length = 0;
      if (!read_varint(&length) || length > left_.size()) return stop_broken();
      bytes_ = left_.substr(0, length);
      left_.remove_prefix(length);
      return true;
    }
  }
  return stop_broken();
}

double ProtoReader::as_double() const { return std::bit_cast<double>(value_); }

void ProtoWriter::raw_varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80U);
  out_ += static_cast<char>(value);
}

void ProtoWriter::varint(std::uint32_t number, std::uint64_t value) {
  raw_varint(key(number, ProtoReader::Kind::kVarint));
  raw_varint(value);
}

void ProtoWriter::fixed(std::uint32_t number, double value) {
  raw_varint(key(number, ProtoReader::Kind::kFixed64));
  char bits[sizeof value];
  std::memcpy(bits, &value, sizeof value);
  out_.append(bits, sizeof value);
}

void ProtoWriter::bytes(std::uint32_t number, std::string_view value) {
  raw_varint(key(number, ProtoReader::Kind::kBytes));
  raw_varint(value.size());
  out_ += value;
}

}  // namespace plexrl::http
