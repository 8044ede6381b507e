// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace plexrl {
namespace {

struct Row {
  Code code;
  std::string_view name;
  Scope scope;
  std::string_view meaning;
};

constexpr auto kRows = std::to_array<Row>({
#define PLEXRL_ERROR(name, value, scope, text) {Code::name, #name, Scope::scope, text},
#include "base/errors.def"
#undef PLEXRL_ERROR
});

const Row* find(Code code) noexcept {
  for (const Row& row : kRows)
    if (row.code == code) return &row;
  return nullptr;
}

std::string format_text(const char* format, va_list args) {
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length <= 0) return {};
  std::string text(static_cast<std::size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  return text;
}

}  // namespace

std::string_view code_name(Code code) noexcept {
  const Row* row = find(code);
  return row != nullptr ? row->name : "UNKNOWN";
}

std::string_view code_meaning(Code code) noexcept {
  const Row* row = find(code);
  return row != nullptr ? row->meaning : "not a code of this version";
}

Scope code_scope(Code code) noexcept {
  const Row* row = find(code);
  return row != nullptr ? row->scope : Scope::kNode;
}

Code code_from_wire(std::int32_t value) noexcept {
  const Row* row = find(static_cast<Code>(value));
  return row != nullptr ? row->code : Code::INTERNAL;
}

Status Status::within(std::string_view context) const& {
  if (ok()) return *this;
  return {code_, std::string(context) + ": " + text_};
}

std::string Status::to_string() const {
  if (ok()) return "OK";
  return std::string(code_name(code_)) + ": " + text_;
}

Status error(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  Status status(code, format_text(format, args));
  va_end(args);
  return status;
}

Status errno_error(Code code, int errno_value, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = format_text(format, args);
  va_end(args);
  std::array<char, 128> buffer{};
  text += ": ";
  text += strerror_r(errno_value, buffer.data(), buffer.size());
  return {code, std::move(text)};
}

}  // namespace plexrl
