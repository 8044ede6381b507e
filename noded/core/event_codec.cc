// SPDX-License-Identifier: Apache-2.0
#include "core/event_codec.h"

namespace plexrl::core {
namespace {

// One list of fields per event serves both directions.
template <class Coder>
void fields(Coder& coder, ModelAdded& event) {
  coder.id(event.model);
  coder.id(event.tenant);
  coder.id(event.engine);
  coder.id(event.base);
  coder.number(event.device_bytes);
  coder.number(event.share_percent);
}
template <class Coder>
void fields(Coder& coder, OpArrived& event) {
  coder.id(event.op);
  coder.id(event.model);
  coder.kind(event.kind);
  coder.number(event.device_bytes);
  coder.number(event.work_tokens);
  coder.duration(event.slice);
  coder.duration(event.limit);
  coder.number(event.rows);
  coder.flag(event.alone);
}
template <class Coder>
void fields(Coder& coder, MoveFailed& event) {
  coder.id(event.model);
  coder.flag(event.was_resume);
}
template <class Coder>
void fields(Coder& coder, TenantBound& event) {
  coder.id(event.tenant);
  coder.number(event.slowdown_permille);
}
template <class Coder>
void fields(Coder&, Tick&) {}
template <class Coder, class Named>
void fields(Coder& coder, Named& event) {
  if constexpr (requires { event.op; }) {
    coder.id(event.op);
  } else if constexpr (requires { event.engine; }) {
    coder.id(event.engine);
  } else {
    coder.id(event.model);
  }
}

struct Encoder {
  ByteWriter& out;
  template <class Id>
  void id(const Id& value) {
    out.varint(value.value);
  }
  void number(std::uint64_t value) { out.varint(value); }
  void duration(Duration value) { out.varint(static_cast<std::uint64_t>(value.ns)); }
  void flag(bool value) { out.flag(value); }
  void kind(OpKind value) { out.u8(static_cast<std::uint8_t>(value)); }
};

struct Decoder {
  ByteReader& in;
  template <class Id>
  void id(Id& value) {
    value.value = in.varint();
  }
  template <class Number>
  void number(Number& value) {
    const std::uint64_t read = in.varint();
    value = static_cast<Number>(read);
    if (value != read) in.fail();
  }
  void duration(Duration& value) { value = decode_duration(in); }
  void flag(bool& value) { value = in.flag(); }
  void kind(OpKind& value) {
    const std::uint8_t read = in.u8();
    if (read == 0 || read > static_cast<std::uint8_t>(OpKind::kLease)) in.fail();
    value = static_cast<OpKind>(read);
  }
};

template <std::size_t... I>
Event decode_kind(ByteReader& in, std::size_t kind, std::index_sequence<I...>) {
  Event event;
  Decoder decoder{in};
  const auto one = [&](auto index) {
    if (kind != index) return;
    fields(decoder, event.emplace<index>());
  };
  (one(std::integral_constant<std::size_t, I>()), ...);
  return event;
}

}  // namespace

void encode_event(ByteWriter& out, const Event& event) {
  out.u8(static_cast<std::uint8_t>(event.index()));
  Encoder encoder{out};
  std::visit([&](auto copy) { fields(encoder, copy); }, event);
}

Event decode_event(ByteReader& in) {
  constexpr std::size_t kKinds = std::variant_size_v<Event>;
  const std::size_t kind = in.u8();
  if (kind >= kKinds) in.fail();
  return decode_kind(in, kind, std::make_index_sequence<kKinds>());
}

void encode_actions(ByteWriter& out, const Actions& actions) {
  out.varint(actions.list.size());
  for (const Action& action : actions.list) {
    out.u8(static_cast<std::uint8_t>(action.index()));
    std::visit(
        [&](const auto& what) {
          if constexpr (requires { what.op; }) {
            out.varint(what.op.value);
          } else {
            out.varint(what.model.value);
          }
        },
        action);
  }
  out.varint(static_cast<std::uint64_t>(actions.wakeup.ns));
}

}  // namespace plexrl::core
