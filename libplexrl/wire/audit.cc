// SPDX-License-Identifier: Apache-2.0
#include "wire/audit.h"

#include "flatbuffers/minireflect.h"

namespace plexrl::wire {
namespace {

using flatbuffers::ElementaryType;
using flatbuffers::Table;
using flatbuffers::TypeCode;
using flatbuffers::TypeTable;
using flatbuffers::uoffset_t;
using Bytes = flatbuffers::Vector<std::uint8_t>;

const std::uint8_t* follow(const std::uint8_t* at) {
  return at + flatbuffers::ReadScalar<uoffset_t>(at);
}

class Audit {
 public:
  explicit Audit(std::size_t budget) : budget_(budget) {}

  Status table(const Table* object, const TypeTable& type) {
    PLEXRL_TRY(charge(sizeof(uoffset_t)));
    const std::uint8_t* previous = nullptr;
    for (std::size_t i = 0; i < type.num_elems; ++i) {
      const auto at = flatbuffers::FieldIndexToOffset(static_cast<flatbuffers::voffset_t>(i));
      const std::uint8_t* value = object->GetAddressOf(at);
      PLEXRL_TRY(field(type.type_codes[i], type, value, previous));
      previous = value;
    }
    return {};
  }

 private:
  Status charge(std::size_t bytes) {
    if (bytes > budget_)
      return error(Code::PROTOCOL, "message: parts of it are referenced more than once");
    budget_ -= bytes;
    return {};
  }

  Status field(TypeCode code, const TypeTable& owner, const std::uint8_t* value,
               const std::uint8_t* previous) {
    const TypeTable* type = code.sequence_ref >= 0 ? owner.type_refs[code.sequence_ref]() : nullptr;
    const auto kind = static_cast<ElementaryType>(code.base_type);
    if (kind == flatbuffers::ET_SEQUENCE && type->st == flatbuffers::ST_UNION)
      return union_field(*type, value, previous);
    if (value == nullptr) return {};
    if (code.is_repeating != 0) return vector(kind, type, follow(value));
    return element(kind, type, value);
  }

  Status union_field(const TypeTable& type, const std::uint8_t* value, const std::uint8_t* tag) {
    const std::size_t member = tag != nullptr ? *tag : 0;
    // None, or a member of a later version, which unpacks to nothing.
    if (member == 0 || member >= type.num_elems) return {};
    if (value == nullptr)
      return error(Code::PROTOCOL, "message: a union has type %zu and no value", member);
    const TypeTable* chosen = type.type_refs[type.type_codes[member].sequence_ref]();
    return table(reinterpret_cast<const Table*>(follow(value)), *chosen);
  }

  Status vector(ElementaryType kind, const TypeTable* type, const std::uint8_t* at) {
    const auto count = reinterpret_cast<const Bytes*>(at)->size();
    const std::size_t width = flatbuffers::InlineSize(kind, type);
    PLEXRL_TRY(charge(sizeof(uoffset_t) + count * width));
    if (kind != flatbuffers::ET_STRING && kind != flatbuffers::ET_SEQUENCE) return {};
    const std::uint8_t* data = at + sizeof(uoffset_t);
    for (uoffset_t i = 0; i < count; ++i) PLEXRL_TRY(element(kind, type, data + i * width));
    return {};
  }

  Status element(ElementaryType kind, const TypeTable* type, const std::uint8_t* at) {
    if (kind == flatbuffers::ET_STRING)
      return charge(sizeof(uoffset_t) + reinterpret_cast<const Bytes*>(follow(at))->size());
    if (kind == flatbuffers::ET_SEQUENCE && type->st == flatbuffers::ST_TABLE)
      return table(reinterpret_cast<const Table*>(follow(at)), *type);
    return {};
  }

  std::size_t budget_;
};

}  // namespace

Status audit_buffer(std::span<const std::uint8_t> buffer, const TypeTable& type) {
  return Audit(buffer.size()).table(flatbuffers::GetRoot<Table>(buffer.data()), type);
}

}  // namespace plexrl::wire
