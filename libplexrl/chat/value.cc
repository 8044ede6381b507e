// SPDX-License-Identifier: Apache-2.0
#include "chat/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace plexrl::chat {
namespace {

std::size_t depth_of(const Value& value) {
  if (const List* const list = value.list()) return list->depth;
  const Object* const object = value.object();
  return object == nullptr ? 0 : object->depth;
}

Status check_member(const Value& value, std::size_t* depth) {
  if (value.name_space() != nullptr)
    return error(Code::INVALID_ARGUMENT, "chat template: a namespace in a list or an object");
  *depth = std::max(*depth, depth_of(value) + 1);
  if (*depth <= Value::kMaxDepth) return {};
  return error(Code::INVALID_ARGUMENT, "chat template: lists and objects deeper than %zu",
               Value::kMaxDepth);
}

// A float as Python's repr() has it: the shortest digits that give it back.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> room{};
  const bool plain = value == 0 || (std::fabs(value) >= 1e-4 && std::fabs(value) < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(room.data(), room.data() + room.size(), value, format);
  std::string text(room.data(), end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// How much the two ways to write a string may need, before it is made.
std::uint64_t escaped_size(const std::string& bytes) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
  const auto controls = std::count_if(bytes.begin(), bytes.end(), is_control);
  return bytes.size() + 5 * static_cast<std::uint64_t>(controls);
}

std::string json_string(const std::string& bytes) {
  return nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// As Python's repr() of a str, but with what is not printable as it is.
std::string quoted(const std::string& bytes) {
  const bool single = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
  const char quote = single ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : bytes) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == quote || c == '\\')
      out.append(1, '\\').append(1, c);
    else
      out += c;
  }
  return out + quote;
}

// Writes a value in one of the two ways.
class Writer {
 public:
  Writer(bool json, int indent, Budget& budget) : json_(json), indent_(indent), budget_(&budget) {}

  Status write(const Value& value, std::size_t level) {
    PLEXRL_TRY(budget_->step());
    if (value.undefined()) {
      if (!json_) return {};
      return error(Code::INVALID_ARGUMENT, "chat template: tojson of something undefined");
    }
    if (const Text* const text = value.text()) {
      given_ = given_ || text->any_given();
      PLEXRL_TRY(budget_->spend(escaped_size(text->bytes())));
      return put(json_ ? json_string(text->bytes()) : quoted(text->bytes()));
    }
    if (const List* const list = value.list()) return write_list(*list, level);
    if (const Object* const object = value.object()) return write_object(*object, level);
    return put(scalar(value));
  }
  [[nodiscard]] Text take() { return Text(std::move(out_), given_); }

 private:
  [[nodiscard]] std::string scalar(const Value& value) const {
    if (value.none()) return json_ ? "null" : "None";
    if (const bool* const flag = value.as<bool>())
      return json_ ? (*flag ? "true" : "false") : (*flag ? "True" : "False");
    if (const auto* const integer = value.as<std::int64_t>()) return std::to_string(*integer);
    if (const auto* const real = value.as<double>()) return float_text(*real);
    return std::string("<") + value.kind() + ">";
  }
  Status put(std::string_view text) {
    out_ += text;
    return budget_->spend(text.size());
  }
  Status separate(bool first, std::size_t level) {
    if (indent_ < 0) return put(first ? "" : ", ");
    PLEXRL_TRY(put(first ? "\n" : ",\n"));
    return put(std::string(level * static_cast<std::size_t>(indent_), ' '));
  }
  Status close(bool empty, std::size_t level, const char* bracket) {
    if (indent_ >= 0 && !empty)
      PLEXRL_TRY(put("\n" + std::string(level * static_cast<std::size_t>(indent_), ' ')));
    return put(bracket);
  }
  Status write_list(const List& list, std::size_t level) {
    PLEXRL_TRY(put("["));
    for (const Value& item : list.items) {
      PLEXRL_TRY(separate(&item == &list.items.front(), level + 1));
      PLEXRL_TRY(write(item, level + 1));
    }
    return close(list.items.empty(), level, "]");
  }
  Status write_object(const Object& object, std::size_t level) {
    PLEXRL_TRY(put("{"));
    for (const auto& item : object.items) {
      PLEXRL_TRY(separate(&item == &object.items.front(), level + 1));
      PLEXRL_TRY(write(Value(item.first), level + 1));
      PLEXRL_TRY(put(": "));
      PLEXRL_TRY(write(item.second, level + 1));
    }
    return close(object.items.empty(), level, "}");
  }

  bool json_;
  int indent_;
  Budget* budget_;
  std::string out_;
  bool given_ = false;
};

// The number that a value is to arithmetic and order.
const double* number(const Value& value, double* room) {
  std::int64_t integer = 0;
  if (const auto* const whole = value.integer(&integer)) {
    *room = static_cast<double>(*whole);
    return room;
  }
  return value.as<double>();
}

Result<bool> equal_lists(const List& left, const List& right, Budget& budget) {
  if (left.items.size() != right.items.size()) return false;
  for (std::size_t i = 0; i < left.items.size(); ++i) {
    PLEXRL_ASSIGN(const bool same, equal(left.items[i], right.items[i], budget));
    if (!same) return false;
  }
  return true;
}

template <class T>
Order order_of(const T& left, const T& right) {
  if (left < right) return Order::kLess;
  if (left == right) return Order::kSame;
  return left > right ? Order::kMore : Order::kNone;
}

// The first members that differ decide, else the lengths.
Result<Order> compare_lists(const List& left, const List& right, Budget& budget) {
  const std::size_t both = std::min(left.items.size(), right.items.size());
  for (std::size_t i = 0; i < both; ++i) {
    PLEXRL_ASSIGN(const bool same, equal(left.items[i], right.items[i], budget));
    if (!same) return compare(left.items[i], right.items[i], budget);
  }
  return order_of(left.items.size(), right.items.size());
}

Result<bool> equal_objects(const Object& left, const Object& right, Budget& budget) {
  if (left.items.size() != right.items.size()) return false;
  for (const auto& [key, value] : left.items) {
    PLEXRL_ASSIGN(const Value* const other, find(right, key->bytes(), budget));
    if (other == nullptr) return false;
    PLEXRL_ASSIGN(const bool same, equal(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

}  // namespace

const Text* Value::text() const {
  const auto* const held = as<std::shared_ptr<const Text>>();
  return held == nullptr ? nullptr : held->get();
}
const List* Value::list() const {
  const auto* const held = as<std::shared_ptr<const List>>();
  return held == nullptr ? nullptr : held->get();
}
const Object* Value::object() const {
  const auto* const held = as<std::shared_ptr<const Object>>();
  return held == nullptr ? nullptr : held->get();
}
Namespace* Value::name_space() const {
  const auto* const held = as<std::shared_ptr<Namespace>>();
  return held == nullptr ? nullptr : held->get();
}

const std::int64_t* Value::integer(std::int64_t* room) const {
  if (const bool* const flag = as<bool>()) {
    *room = *flag ? 1 : 0;
    return room;
  }
  return as<std::int64_t>();
}

bool Value::truth() const {
  if (const bool* const flag = as<bool>()) return *flag;
  if (const auto* const whole = as<std::int64_t>()) return *whole != 0;
  if (const auto* const real = as<double>()) return *real != 0;
  if (text() != nullptr) return !text()->empty();
  if (list() != nullptr) return !list()->items.empty();
  if (object() != nullptr) return !object()->items.empty();
  return name_space() != nullptr;
}

const char* Value::kind() const {
  static constexpr std::array<const char*, 9> kKinds = {"undefined",  "none",      "a boolean",
                                                        "an integer", "a float",   "a string",
                                                        "a list",     "an object", "a namespace"};
  return kKinds[of_.index()];
}

Result<Value> make_list(std::vector<Value> items) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) PLEXRL_TRY(check_member(item, &list->depth));
  list->items = std::move(items);
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Result<Value> make_object(std::vector<std::pair<Key, Value>> items) {
  auto object = std::make_shared<Object>();
  for (const auto& item : items) PLEXRL_TRY(check_member(item.second, &object->depth));
  object->items = std::move(items);
  return Value(std::shared_ptr<const Object>(std::move(object)));
}

Result<const Value*> find(const Object& object, const std::string& key, Budget& budget) {
  PLEXRL_TRY(budget.search(object.items.size(), key.size()));
  for (const auto& item : object.items)
    if (item.first->bytes() == key) return &item.second;
  return static_cast<const Value*>(nullptr);
}

Result<Value> from_json(const nlohmann::ordered_json& json, bool given, std::size_t level) {
  if (level > Value::kMaxDepth)
    return error(Code::INVALID_ARGUMENT, "chat template: messages deeper than %zu",
                 Value::kMaxDepth);
  if (json.is_null()) return Value(None{});
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_string()) return Value(Text(json.get<std::string>(), given));
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX)
    return error(Code::INVALID_ARGUMENT, "chat template: the number %s is beyond 64 bits",
                 json.dump().c_str());
  if (json.is_number()) return Value(json.get<std::int64_t>());
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) {
      PLEXRL_ASSIGN(items.emplace_back(), from_json(item, given, level + 1));
    }
    return make_list(std::move(items));
  }
  std::vector<std::pair<Key, Value>> items;
  for (const auto& [key, item] : json.items()) {
    PLEXRL_ASSIGN(Value value, from_json(item, given, level + 1));
    items.emplace_back(std::make_shared<const Text>(key, given), std::move(value));
  }
  return make_object(std::move(items));
}

Result<bool> equal(const Value& left, const Value& right, Budget& budget) {
  PLEXRL_TRY(budget.step());
  double a = 0;
  double b = 0;
  std::int64_t whole = 0;
  std::int64_t other = 0;
  if (left.integer(&whole) != nullptr && right.integer(&other) != nullptr)
    return *left.integer(&whole) == *right.integer(&other);
  if (number(left, &a) != nullptr && number(right, &b) != nullptr)
    return *number(left, &a) == *number(right, &b);
  if (left.text() != nullptr && right.text() != nullptr) {
    PLEXRL_TRY(budget.spend(std::min(left.text()->size(), right.text()->size())));
    return left.text()->bytes() == right.text()->bytes();
  }
  if (left.list() != nullptr && right.list() != nullptr)
    return equal_lists(*left.list(), *right.list(), budget);
  if (left.object() != nullptr && right.object() != nullptr)
    return equal_objects(*left.object(), *right.object(), budget);
  if (left.name_space() != nullptr) return left.name_space() == right.name_space();
  return (left.none() && right.none()) || (left.undefined() && right.undefined());
}

Result<Order> compare(const Value& left, const Value& right, Budget& budget) {
  PLEXRL_TRY(budget.step());
  double a = 0;
  double b = 0;
  std::int64_t whole = 0;
  std::int64_t other = 0;
  if (left.integer(&whole) != nullptr && right.integer(&other) != nullptr)
    return order_of(*left.integer(&whole), *right.integer(&other));
  if (number(left, &a) != nullptr && number(right, &b) != nullptr)
    return order_of(*number(left, &a), *number(right, &b));
  if (left.list() != nullptr && right.list() != nullptr)
    return compare_lists(*left.list(), *right.list(), budget);
  if (left.text() == nullptr || right.text() == nullptr)
    return error(Code::INVALID_ARGUMENT, "chat template: no order between %s and %s", left.kind(),
                 right.kind());
  PLEXRL_TRY(budget.spend(std::min(left.text()->size(), right.text()->size())));
  return order_of(left.text()->bytes(), right.text()->bytes());
}

Result<Text> to_text(const Value& value, Budget& budget) {
  if (const Text* const text = value.text()) {
    PLEXRL_TRY(budget.spend(text->size()));
    return *text;
  }
  Writer writer(false, -1, budget);
  PLEXRL_TRY(writer.write(value, 0));
  return writer.take();
}

Result<Text> to_json_text(const Value& value, int indent, Budget& budget) {
  Writer writer(true, indent, budget);
  PLEXRL_TRY(writer.write(value, 0));
  return writer.take();
}

}  // namespace plexrl::chat
