// SPDX-License-Identifier: Apache-2.0
// Frame: the unit of both protocols on an AF_UNIX stream. A fixed header of 24 bytes, little
// endian, then the payload (one FlatBuffers message). File descriptors travel with the first byte
// of the header by SCM_RIGHTS. doc/protocol.md is the prose form.
//
//   offset size
//        0    4  magic "PXRL"
//        4    2  frame version, 1
//        6    1  type, 1 = message
//        7    1  flags, 0
//        8    4  payload bytes, 1 .. limit
//       12    2  number of file descriptors, 0 .. limit
//       14   10  zero
//
// Every field is checked before anything after the header is read. What a header breaks is
// PROTOCOL, a payload above the limit is TOO_LARGE; both end the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::wire {

inline constexpr std::size_t kHeaderBytes = 24;
inline constexpr std::uint32_t kFrameMagic = 0x4c525850;  // "PXRL"
inline constexpr std::uint16_t kFrameVersion = 1;
inline constexpr std::uint8_t kFrameTypeMessage = 1;
// Hello.protocol and EngineHello.protocol: the version of the messages inside the frames.
inline constexpr std::uint32_t kProtocolVersion = 1;
// Of engine.fbs: an engine of another version is ended, and its models go on from their commits.
inline constexpr std::uint32_t kEngineProtocolVersion = 2;
// Most fds that any frame may carry, whatever a channel's own limit says.
inline constexpr std::uint32_t kMaxFrameFds = 8;

// Bounds of one endpoint. All are for data of this side's peer, except max_out_bytes.
struct Limits {
  // 64 MiB holds forward_backward of 2.5 million positions (20 bytes each, with headroom).
  std::uint32_t max_payload_bytes = 64U << 20;
  std::uint32_t max_fds = kMaxFrameFds;  // per frame
  std::size_t max_in_bytes = 64U << 20;  // complete frames not taken yet; reading pauses above
  std::size_t max_in_frames = 1024;
  std::size_t max_in_fds = 64;
  std::size_t max_out_bytes = 128U << 20;  // frames not written yet; send() is BUSY above
};

struct FrameHeader {
  std::uint32_t payload_bytes = 0;
  std::uint16_t fd_count = 0;
};

// A received frame. The payload is aligned for FlatBuffers.
struct Frame {
  std::vector<std::uint8_t> payload;
  std::vector<UniqueFd> fds;
};

[[nodiscard]] std::array<std::uint8_t, kHeaderBytes> encode_header(
    const FrameHeader& header) noexcept;
[[nodiscard]] Result<FrameHeader> parse_header(std::span<const std::uint8_t, kHeaderBytes> bytes,
                                               const Limits& limits);

}  // namespace plexrl::wire
