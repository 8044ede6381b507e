// SPDX-License-Identifier: Apache-2.0
#include "wire/message.h"

#include <exception>

#include "wire/audit.h"

namespace plexrl::wire {
namespace {

template <class Table>
flatbuffers::DetachedBuffer pack(const typename Table::NativeTableType& message,
                                 const char* identifier) {
  flatbuffers::FlatBufferBuilder builder(1024);
  builder.Finish(Table::Pack(builder, &message), identifier);
  return builder.Release();
}

template <class Table>
Result<typename Table::NativeTableType> unpack(std::span<const std::uint8_t> payload,
                                               const char* identifier) {
  flatbuffers::Verifier verifier(payload.data(), payload.size(), kMaxMessageDepth,
                                 kMaxMessageTables);
  if (!verifier.VerifyBuffer<Table>(identifier))
    return error(Code::PROTOCOL, "message: %zu bytes that are not a valid '%s' message",
                 payload.size(), identifier);
  PLEXRL_TRY(audit_buffer(payload, *Table::MiniReflectTypeTable()));
  try {
    typename Table::NativeTableType message;
    flatbuffers::GetRoot<Table>(payload.data())->UnPackTo(&message);
    return message;
  } catch (const std::exception& e) {
    return error(Code::BUSY, "message: cannot be unpacked: %s", e.what());
  }
}

}  // namespace

flatbuffers::DetachedBuffer encode(const MessageT& message) {
  return pack<Message>(message, MessageIdentifier());
}

flatbuffers::DetachedBuffer encode(const EngineMessageT& message) {
  return pack<EngineMessage>(message, EngineMessageIdentifier());
}

Result<MessageT> decode_message(std::span<const std::uint8_t> payload) {
  return unpack<Message>(payload, MessageIdentifier());
}

Result<EngineMessageT> decode_engine_message(std::span<const std::uint8_t> payload) {
  return unpack<EngineMessage>(payload, EngineMessageIdentifier());
}

}  // namespace plexrl::wire
