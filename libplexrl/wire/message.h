// SPDX-License-Identifier: Apache-2.0
// Messages as payloads: FlatBuffers with an identifier, verified and audited before they are
// unpacked. The object API (names ending in T) is what the code uses.
//
// What decode does not check: numbers. Enum values may lie outside the enum, a union may have a
// type that this version does not know (then its value is null, and the answer is UNSUPPORTED),
// lengths and ids are as the peer sent them.
#pragma once

#include <span>

#include "base/result.h"
#include "engine_generated.h"
#include "plexrl_generated.h"
#include "wire/channel.h"
#include "wire/failure.h"

namespace plexrl::wire {

// The deepest honest message nests eight tables.
inline constexpr std::uint32_t kMaxMessageDepth = 16;
// Rows, data and chunk lists of the largest useful frame; bounds what small tables unpack to.
inline constexpr std::uint32_t kMaxMessageTables = 1U << 18;

[[nodiscard]] flatbuffers::DetachedBuffer encode(const MessageT& message);
[[nodiscard]] flatbuffers::DetachedBuffer encode(const EngineMessageT& message);

// PROTOCOL when the payload is not one well-formed message.
[[nodiscard]] Result<MessageT> decode_message(std::span<const std::uint8_t> payload);
[[nodiscard]] Result<EngineMessageT> decode_engine_message(std::span<const std::uint8_t> payload);

// One request or reply with its body, ready for encode(). Body is any table of the union.
template <class BodyT>
[[nodiscard]] MessageT message(std::uint64_t request_id, BodyT body) {
  MessageT m;
  m.request_id = request_id;
  m.body.Set(std::move(body));
  return m;
}
template <class BodyT>
[[nodiscard]] EngineMessageT engine_message(std::uint64_t request_id, BodyT body) {
  EngineMessageT m;
  m.request_id = request_id;
  m.body.Set(std::move(body));
  return m;
}

// The body as a BodyT, null when it is something else. OpArgs and OpValue: their own As functions.
template <class BodyT>
[[nodiscard]] BodyT* body_as(BodyUnion& body) {
  const bool same = body.type == BodyUnionTraits<BodyT>::enum_value;
  return same ? static_cast<BodyT*>(body.value) : nullptr;
}

}  // namespace plexrl::wire
