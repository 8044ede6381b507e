// SPDX-License-Identifier: Apache-2.0
#include "cli/train/arithmetic.h"

#include <utility>

namespace plexrl::cli {
namespace {

using Wide = __int128;

constexpr Wide kLargest = Wide{1} << 62;
constexpr std::int64_t kLargestNumber = 1'000'000'000;
constexpr std::size_t kLongestText = 1000;
constexpr int kDeepest = 50;

Wide magnitude(Wide value) { return value < 0 ? -value : value; }

std::optional<Fraction> lowest(Wide top, Wide bottom) {
  if (bottom == 0) return std::nullopt;
  if (bottom < 0) {
    top = -top;
    bottom = -bottom;
  }
  Wide a = magnitude(top);
  Wide b = bottom;
  while (b != 0) a = std::exchange(b, a % b);
  top /= a;
  bottom /= a;
  if (magnitude(top) >= kLargest || bottom >= kLargest) return std::nullopt;
  return Fraction{static_cast<std::int64_t>(top), static_cast<std::int64_t>(bottom)};
}

// Recursive descent. `none` of parse functions means that the text is no expression; a value that
// is missing inside it is a division by zero.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Arithmetic> run() {
    Value value;
    if (!sum(&value) || next() != '\0' || at_ < text_.size()) return std::nullopt;
    return Arithmetic{std::move(numbers_), value};
  }

 private:
  using Value = std::optional<Fraction>;

  char next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (next() != wanted || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  static Value join(const Value& a, char operation, const Value& b) {
    return a && b ? combine(*a, operation, *b) : std::nullopt;
  }
  bool sum(Value* out) { return chain(&Parser::product, '+', '-', out); }
  bool product(Value* out) { return chain(&Parser::factor, '*', '/', out); }
  bool chain(bool (Parser::*operand)(Value*), char first, char second, Value* out) {
    if (!(this->*operand)(out)) return false;
    for (;;) {
      const char operation = next();
      if (operation != first && operation != second) return true;
      ++at_;
      Value right;
      if (!(this->*operand)(&right)) return false;
      *out = join(*out, operation, right);
    }
  }
  bool factor(Value* out) {
    if (!take('(')) return number(out);
    if (++depth_ > kDeepest) return false;
    const bool good = sum(out) && take(')');
    --depth_;
    return good;
  }
  bool number(Value* out) {
    std::int64_t value = 0;
    const char first = next();
    if (first < '0' || first > '9') return false;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > kLargestNumber) return false;
    }
    numbers_.push_back(value);
    *out = Fraction{value, 1};
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::int64_t> numbers_;
};

}  // namespace

std::optional<Fraction> combine(Fraction a, char operation, Fraction b) {
  switch (operation) {
    case '+':
      return lowest(Wide{a.top} * b.bottom + Wide{b.top} * a.bottom, Wide{a.bottom} * b.bottom);
    case '-':
      return lowest(Wide{a.top} * b.bottom - Wide{b.top} * a.bottom, Wide{a.bottom} * b.bottom);
    case '*':
      return lowest(Wide{a.top} * b.top, Wide{a.bottom} * b.bottom);
    case '/':
      return lowest(Wide{a.top} * b.bottom, Wide{a.bottom} * b.top);
    default:
      return std::nullopt;
  }
}

std::optional<Arithmetic> evaluate(std::string_view text) {
  if (text.size() > kLongestText) return std::nullopt;
  return Parser(text).run();
}

}  // namespace plexrl::cli
