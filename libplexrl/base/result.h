// SPDX-License-Identifier: Apache-2.0
// Result<T>: a T or the Status that says why there is none. Method names follow std::expected.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace plexrl {

template <class T>
class [[nodiscard]] Result {
  static_assert(!std::is_same_v<std::remove_cv_t<T>, Status>, "use Status itself");

 public:
  using value_type = T;

  // NOLINTNEXTLINE(google-explicit-constructor): a value is a Result, as in std::expected
  Result(T value) : value_(std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): so that `return error(...)` works
  Result(Status status) : status_(std::move(status)) {
    PLEXRL_CHECK(!status_.ok(), "a Result needs a value or an error");
  }

  [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }
  [[nodiscard]] explicit operator bool() const noexcept { return has_value(); }

  // Value access aborts the process when there is none: test first.
  [[nodiscard]] T& value() & { return checked(); }
  [[nodiscard]] const T& value() const& { return const_cast<Result*>(this)->checked(); }
  [[nodiscard]] T&& value() && { return std::move(checked()); }
  [[nodiscard]] T& operator*() & { return checked(); }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T&& operator*() && { return std::move(checked()); }
  [[nodiscard]] T* operator->() { return &checked(); }
  [[nodiscard]] const T* operator->() const { return &value(); }
  template <class U>
  [[nodiscard]] T value_or(U&& other) const& {
    return has_value() ? *value_ : static_cast<T>(std::forward<U>(other));
  }

  // The ok status when there is a value.
  [[nodiscard]] const Status& error() const noexcept { return status_; }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  T& checked() {
    PLEXRL_CHECK(value_.has_value(), status_.to_string().c_str());
    return *value_;
  }
  std::optional<T> value_;
  Status status_;
};

}  // namespace plexrl

#define PLEXRL_CONCAT_INNER(a, b) a##b
#define PLEXRL_CONCAT(a, b) PLEXRL_CONCAT_INNER(a, b)
#define PLEXRL_ASSIGN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                        \
  if (!tmp.has_value()) return tmp.error(); \
  lhs = std::move(tmp).value()
// PLEXRL_ASSIGN(auto fd, open_it(path)); returns the error to the caller or assigns the value.
#define PLEXRL_ASSIGN(lhs, expr) \
  PLEXRL_ASSIGN_INNER(PLEXRL_CONCAT(plexrl_result_, __LINE__), lhs, expr)
