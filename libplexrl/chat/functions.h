// SPDX-License-Identifier: Apache-2.0
// Filters, tests, methods and functions that a chat template may name. UNSUPPORTED: one that is not
// here; INVALID_ARGUMENT: one that is not for such values.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/budget.h"
#include "chat/value.h"

namespace plexrl::chat {

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  // By place or name; nullptr when it is not given.
  [[nodiscard]] const Value* find(std::size_t place, const char* name) const;
  // INVALID_ARGUMENT: `of` is given more than `names`, so none is ignored.
  [[nodiscard]] Status only(const std::string& of, std::initializer_list<const char*> names) const;
};

[[nodiscard]] Result<Value> apply_filter(const std::string& name, const Value& of,
                                         const Arguments& arguments, Budget& budget);
[[nodiscard]] Result<bool> apply_test(const std::string& name, const Value& of);
[[nodiscard]] Result<Value> call_method(const Value& of, const std::string& name,
                                        const Arguments& arguments, Budget& budget);
// A name that an object's attribute in Jinja never is, because it is a method of dict.
[[nodiscard]] bool is_object_method(std::string_view name);
[[nodiscard]] Result<Value> call_function(const std::string& name, const Arguments& arguments,
                                          Budget& budget);

// What a loop goes through: a list's members, an object's keys, a string's characters.
[[nodiscard]] Result<std::vector<Value>> members(const Value& of, Budget& budget);
[[nodiscard]] Result<std::int64_t> length(const Value& of, Budget& budget);

}  // namespace plexrl::chat
