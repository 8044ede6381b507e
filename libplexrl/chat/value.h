// SPDX-License-Identifier: Apache-2.0
// Value: what an expression of a chat template is worth. Lists and objects never change, so there
// are no cycles; a namespace, whose attributes are set, may not be put into anything.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "chat/budget.h"
#include "chat/text.h"

namespace plexrl::chat {

class Value;
struct Undefined {
  Undefined() = default;
  // Cut, because it is copied with each value, and what was looked for may be long.
  explicit Undefined(std::string_view looked_for) : name(looked_for.substr(0, 40)) {}
  std::string name;
};
struct None {};
struct List {
  std::vector<Value> items;
  std::size_t depth = 1;
};
using Key = std::shared_ptr<const Text>;  // never nullptr; shared, so that a copy costs little
struct Object {
  std::vector<std::pair<Key, Value>> items;  // in the order of the source, each key once
  std::size_t depth = 1;
};
struct Namespace {
  std::map<std::string, Value> items;
};

class Value {
 public:
  using Of = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                          std::shared_ptr<const List>, std::shared_ptr<const Object>,
                          std::shared_ptr<Namespace>>;
  static constexpr std::size_t kMaxDepth = 64;

  Value() = default;
  template <class T>
  explicit Value(T of) : of_(std::move(of)) {}
  explicit Value(Text text) : of_(std::make_shared<const Text>(std::move(text))) {}

  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&of_);
  }
  [[nodiscard]] const Text* text() const;
  [[nodiscard]] const List* list() const;
  [[nodiscard]] const Object* object() const;
  [[nodiscard]] Namespace* name_space() const;
  [[nodiscard]] bool undefined() const { return as<Undefined>() != nullptr; }
  [[nodiscard]] bool none() const { return as<None>() != nullptr; }
  // Of an int or a bool, as in Python.
  [[nodiscard]] const std::int64_t* integer(std::int64_t* room) const;
  [[nodiscard]] bool truth() const;
  [[nodiscard]] const char* kind() const;  // for errors

 private:
  Of of_;
};

// INVALID_ARGUMENT: too deep, or a namespace in it.
[[nodiscard]] Result<Value> make_list(std::vector<Value> items);
[[nodiscard]] Result<Value> make_object(std::vector<std::pair<Key, Value>> items);
// nullptr: no such key.
[[nodiscard]] Result<const Value*> find(const Object& object, const std::string& key,
                                        Budget& budget);

// All text in it is `given`. INVALID_ARGUMENT: too deep, or a number beyond 64 bits.
[[nodiscard]] Result<Value> from_json(const nlohmann::ordered_json& json, bool given,
                                      std::size_t level = 0);

// As Python has them. A list may hold another many times, so these may take much longer than the
// values are large. INVALID_ARGUMENT: no order between them. kNone: of NaN and a number.
[[nodiscard]] Result<bool> equal(const Value& left, const Value& right, Budget& budget);
enum class Order : std::uint8_t { kLess, kSame, kMore, kNone };
[[nodiscard]] Result<Order> compare(const Value& left, const Value& right, Budget& budget);

// As Python's str() and as json.dumps(ensure_ascii=False) write it; `indent` < 0: in one line.
[[nodiscard]] Result<Text> to_text(const Value& value, Budget& budget);
[[nodiscard]] Result<Text> to_json_text(const Value& value, int indent, Budget& budget);

}  // namespace plexrl::chat
