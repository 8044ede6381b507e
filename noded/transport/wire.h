// SPDX-License-Identifier: Apache-2.0
// The bytes of the transport's protocol (doc/transport.md): frames of the handshake and the header
// of messages. What comes from a peer is checked for structure here, for sense by who uses it.
// Pure; any thread.
#pragma once

#include <array>
#include <optional>
#include <variant>

#include "transport/transport.h"

namespace plexrl::transport {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kMaxAddressBytes = 8U << 10;
inline constexpr std::size_t kMaxRefusalBytes = 512;
// Chunks that one side may have asked for and not got, on one connection.
inline constexpr unsigned kLinkChunks = 16;

using Nonce = std::array<std::uint8_t, 16>;

// The first frame of both sides; its first eight bytes (magic, version) are the same for ever.
struct Greeting {
  std::uint32_t version = kProtocolVersion;
  Nonce nonce{};
};
struct Hello {
  Identity identity;
  std::uint64_t epoch = 0;
  std::uint64_t key = 0;  // in every message to who sent this
  std::string address;    // the carrier's
  std::string credential;
};
struct Refusal {
  Code code = Code::INTERNAL;
  std::string text;
};
using Frame = std::variant<Greeting, Hello, Refusal>;

[[nodiscard]] std::string encode(const Greeting& greeting);
[[nodiscard]] std::string encode(const Hello& hello);
[[nodiscard]] std::string encode(const Refusal& refusal);
// PROTOCOL; UNSUPPORTED for a greeting of another version.
[[nodiscard]] Result<Frame> decode_frame(std::string_view bytes);
// What the credential of `hello` vouches for: who says it, to whose nonce, everything else in it.
[[nodiscard]] std::string binding_of(const Hello& hello, bool initiator, const Nonce& to,
                                     const Nonce& from);

enum class MessageType : std::uint32_t {
  kText = 1,  // number: of the message, from 1 on; payload
  kTaken,     // number: of the kText, code; payload: the reason when code is not OK
  kGet,       // number: of the chunk, offer, total: bytes of the offer; offset, bytes: of the chunk
  kChunk,     // number: of the kGet, code; payload: the bytes, or the reason
  kPing,
  kPong,
};
struct Header {
  MessageType type = MessageType::kPing;
  std::int32_t code = 0;
  std::uint64_t key = 0;
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  std::uint64_t offer = 0;
  std::uint64_t total = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
[[nodiscard]] std::string encode(const Header& header);
[[nodiscard]] std::optional<Header> decode_header(std::string_view bytes);

}  // namespace plexrl::transport
