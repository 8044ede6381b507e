// SPDX-License-Identifier: Apache-2.0
#include "chat/operators.h"

#include <cmath>

namespace plexrl::chat {
namespace {

Status not_between(const std::string& sign, const Value& left, const Value& right) {
  return error(Code::INVALID_ARGUMENT, "chat template: '%s' between %s and %s", sign.c_str(),
               left.kind(), right.kind());
}

Result<Value> whole_numbers(const std::string& sign, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool over = false;
  if (sign == "+") over = __builtin_add_overflow(a, b, &out);
  if (sign == "-") over = __builtin_sub_overflow(a, b, &out);
  if (sign == "*") over = __builtin_mul_overflow(a, b, &out);
  if (sign == "//" || sign == "%") {
    over = a == INT64_MIN && b == -1;
    if (!over) {  // towards minus infinity
      const std::int64_t rest = a % b;
      const bool adjust = rest != 0 && (rest < 0) != (b < 0);
      out = sign == "%" ? rest + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
    }
  }
  if (over) return error(Code::INVALID_ARGUMENT, "chat template: a number beyond 64 bits");
  return Value(out);
}

Result<Value> real_numbers(const std::string& sign, double a, double b) {
  if (sign == "+") return Value(a + b);
  if (sign == "-") return Value(a - b);
  if (sign == "*") return Value(a * b);
  if (sign == "/") return Value(a / b);
  double rest = std::fmod(a, b);  // with the sign of b, as Python has it
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (sign == "//") return Value(std::round((a - rest) / b));
  return Value(rest);
}

bool read_real(const Value& value, double* out) {
  std::int64_t room = 0;
  if (const std::int64_t* const whole = value.integer(&room)) {
    *out = static_cast<double>(*whole);
    return true;
  }
  if (value.as<double>() == nullptr) return false;
  *out = *value.as<double>();
  return true;
}

Result<Value> arithmetic(const std::string& sign, const Value& left, const Value& right) {
  std::int64_t first = 0;
  std::int64_t second = 0;
  double a = 0;
  double b = 0;
  if (!read_real(left, &a) || !read_real(right, &b)) return not_between(sign, left, right);
  const bool divides = sign == "/" || sign == "//" || sign == "%";
  if (divides && b == 0) return error(Code::INVALID_ARGUMENT, "chat template: a division by 0");
  const std::int64_t* const x = left.integer(&first);
  const std::int64_t* const y = right.integer(&second);
  if (x != nullptr && y != nullptr && sign != "/") return whole_numbers(sign, *x, *y);
  return real_numbers(sign, a, b);
}

Result<Value> join(const Value& left, const Value& right, Budget& budget) {
  PLEXRL_ASSIGN(Text text, to_text(left, budget));
  PLEXRL_ASSIGN(const Text more, to_text(right, budget));
  text.append(more);
  return Value(std::move(text));
}

Result<Value> add(const Value& left, const Value& right, Budget& budget) {
  if (left.text() != nullptr && right.text() != nullptr) return join(left, right, budget);
  if (left.list() == nullptr || right.list() == nullptr) return arithmetic("+", left, right);
  PLEXRL_TRY(budget.members(left.list()->items.size() + right.list()->items.size()));
  std::vector<Value> items = left.list()->items;
  items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
  return make_list(std::move(items));
}

Result<bool> contains(const Value& all, const Value& one, Budget& budget) {
  if (all.undefined()) return false;
  if (const Text* const text = all.text()) {
    if (one.text() == nullptr) return not_between("in", one, all);
    PLEXRL_TRY(budget.search(text->size(), one.text()->size()));
    return text->bytes().find(one.text()->bytes()) != std::string::npos;
  }
  if (const Object* const object = all.object()) {
    if (one.list() != nullptr || one.object() != nullptr) return not_between("in", one, all);
    PLEXRL_TRY(budget.members(object->items.size()));
    if (one.text() == nullptr) return false;
    PLEXRL_ASSIGN(const Value* const found, find(*object, one.text()->bytes(), budget));
    return found != nullptr;
  }
  if (all.list() == nullptr) return not_between("in", one, all);
  for (const Value& item : all.list()->items) {
    PLEXRL_ASSIGN(const bool same, equal(item, one, budget));
    if (same) return true;
  }
  return false;
}

}  // namespace

Result<Value> apply_operator(const std::string& sign, const Value& left, const Value& right,
                             Budget& budget) {
  if (sign == "+") return add(left, right, budget);
  if (sign == "~") return join(left, right, budget);
  if (sign == "==" || sign == "!=") {
    PLEXRL_ASSIGN(const bool same, equal(left, right, budget));
    return Value(same == (sign == "=="));
  }
  if (sign == "in" || sign == "not in") {
    PLEXRL_ASSIGN(const bool inside, contains(right, left, budget));
    return Value(inside == (sign == "in"));
  }
  if (sign.front() != '<' && sign.front() != '>') return arithmetic(sign, left, right);
  PLEXRL_ASSIGN(const Order order, compare(left, right, budget));
  const Order strict = sign.front() == '<' ? Order::kLess : Order::kMore;
  return Value(order == strict || (sign.size() == 2 && order == Order::kSame));
}

}  // namespace plexrl::chat
