// SPDX-License-Identifier: Apache-2.0
// Exact arithmetic on expressions that a model wrote: numbers, + - * / and parentheses. The text
// may be anything: length and depth are bounded, and what grows too large has no value.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace plexrl::cli {

// In lowest terms; bottom > 0; both below 2^62 in magnitude.
struct Fraction {
  std::int64_t top = 0;
  std::int64_t bottom = 1;
  friend bool operator==(const Fraction&, const Fraction&) = default;
};

// None when it is not in range, or when it divides by zero.
[[nodiscard]] std::optional<Fraction> combine(Fraction a, char operation, Fraction b);

struct Arithmetic {
  std::vector<std::int64_t> numbers;  // in the order of the text
  std::optional<Fraction> value;      // none: a division by zero, or out of range
};

// The usual precedence, from left to right; blanks are skipped. None: not an expression, a number
// above 10^9, more than 1,000 characters, or parentheses more than 50 deep.
[[nodiscard]] std::optional<Arithmetic> evaluate(std::string_view text);

}  // namespace plexrl::cli
