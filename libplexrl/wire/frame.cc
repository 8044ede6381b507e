// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.h"

#include <algorithm>
#include <cstring>

namespace plexrl::wire {
namespace {

constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kTypeAt = 6;
constexpr std::size_t kFlagsAt = 7;
constexpr std::size_t kPayloadAt = 8;
constexpr std::size_t kFdsAt = 12;
constexpr std::size_t kZeroAt = 14;

void put(std::uint8_t* at, std::uint32_t value, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint32_t get(const std::uint8_t* at, std::size_t bytes) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= static_cast<std::uint32_t>(at[i]) << (8 * i);
  return value;
}

Status check_constants(const std::uint8_t* header) {
  if (get(header, 4) != kFrameMagic)
    return error(Code::PROTOCOL, "frame: wrong magic 0x%08x: the peer does not speak this protocol",
                 get(header, 4));
  if (get(header + kVersionAt, 2) != kFrameVersion)
    return error(Code::PROTOCOL, "frame: version %u, this side speaks %u: use one release on both",
                 get(header + kVersionAt, 2), unsigned{kFrameVersion});
  if (header[kTypeAt] != kFrameTypeMessage || header[kFlagsAt] != 0)
    return error(Code::PROTOCOL, "frame: unknown type %u or flags 0x%02x",
                 unsigned{header[kTypeAt]}, unsigned{header[kFlagsAt]});
  if (std::any_of(header + kZeroAt, header + kHeaderBytes, [](std::uint8_t b) { return b != 0; }))
    return error(Code::PROTOCOL, "frame: reserved bytes of the header are not zero");
  return {};
}

}  // namespace

std::array<std::uint8_t, kHeaderBytes> encode_header(const FrameHeader& header) noexcept {
  std::array<std::uint8_t, kHeaderBytes> bytes{};
  put(bytes.data(), kFrameMagic, 4);
  put(bytes.data() + kVersionAt, kFrameVersion, 2);
  bytes[kTypeAt] = kFrameTypeMessage;
  put(bytes.data() + kPayloadAt, header.payload_bytes, 4);
  put(bytes.data() + kFdsAt, header.fd_count, 2);
  return bytes;
}

Result<FrameHeader> parse_header(std::span<const std::uint8_t, kHeaderBytes> bytes,
                                 const Limits& limits) {
  PLEXRL_TRY(check_constants(bytes.data()));
  FrameHeader header;
  header.payload_bytes = get(bytes.data() + kPayloadAt, 4);
  header.fd_count = static_cast<std::uint16_t>(get(bytes.data() + kFdsAt, 2));
  if (header.payload_bytes == 0) return error(Code::PROTOCOL, "frame: empty payload");
  if (header.payload_bytes > limits.max_payload_bytes)
    return error(Code::TOO_LARGE,
                 "frame: payload of %u bytes, the limit is %u: send smaller batches",
                 header.payload_bytes, limits.max_payload_bytes);
  if (header.fd_count > std::min(limits.max_fds, kMaxFrameFds))
    return error(Code::PROTOCOL, "frame: %u file descriptors, the limit is %u",
                 unsigned{header.fd_count}, std::min(limits.max_fds, kMaxFrameFds));
  return header;
}

}  // namespace plexrl::wire
