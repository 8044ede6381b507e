// SPDX-License-Identifier: Apache-2.0
// Status: how every fallible function of PlexRL reports failure.
//
// A Status is a code (see errors.def) and a text that says what happened, to what, and what to do.
// Detail grows outward: callers prepend context with `within`. Values are cheap to move, safe to
// share between threads when const. No exceptions of our own; a library's are caught at its edge.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace plexrl {

enum class Code : std::int32_t {
#define PLEXRL_ERROR(name, value, scope, text) name = (value),
#include "base/errors.def"
#undef PLEXRL_ERROR
};

enum class Scope : std::uint8_t { kNone, kRetry, kRequest, kTenant, kNode };

// Stable upper-case name, "OK" ... "INTERNAL"; "UNKNOWN" for a value that is not in the list.
[[nodiscard]] std::string_view code_name(Code code) noexcept;
// The table's one-line meaning.
[[nodiscard]] std::string_view code_meaning(Code code) noexcept;
[[nodiscard]] Scope code_scope(Code code) noexcept;
// Maps a number from a peer; values that are not in the list become INTERNAL.
[[nodiscard]] Code code_from_wire(std::int32_t value) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code, std::string text) : code_(code), text_(std::move(text)) {}

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::OK; }
  [[nodiscard]] explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] Scope scope() const noexcept { return code_scope(code_); }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

  // "context: text"; keeps the code. An ok status stays as it is.
  [[nodiscard]] Status within(std::string_view context) const&;
  // "CODE: text" for logs and users.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Status& a, const Status& b) = default;

 private:
  Code code_ = Code::OK;
  std::string text_;
};

// printf-style construction: error(Code::NOT_FOUND, "model '%s': not in the registry", name).
[[nodiscard]] Status error(Code code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
// The same with ": <strerror(errno_value)>" appended.
[[nodiscard]] Status errno_error(Code code, int errno_value, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

}  // namespace plexrl

// Returns the Status of `expr` to the caller unless it is ok.
#define PLEXRL_TRY(expr)                                                      \
  do {                                                                        \
    if (::plexrl::Status plexrl_try_status = (expr); !plexrl_try_status.ok()) \
      return plexrl_try_status;                                               \
  } while (false)
