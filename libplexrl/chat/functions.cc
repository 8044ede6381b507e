// SPDX-License-Identifier: Apache-2.0
#include "chat/functions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace plexrl::chat {
namespace {

constexpr std::size_t kAll = SIZE_MAX;

Status no_such(const char* what, const std::string& name) {
  return error(Code::UNSUPPORTED, "chat template: %s '%s' is not supported", what,
               name.substr(0, 40).c_str());
}

Status not_for(const std::string& name, const Value& of) {
  return error(Code::INVALID_ARGUMENT, "chat template: '%s' of %s", name.substr(0, 40).c_str(),
               of.kind());
}

Result<Value> list_of(std::vector<Text> texts, Budget& budget) {
  PLEXRL_TRY(budget.members(texts.size()));
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.emplace_back(std::move(text));
  return make_list(std::move(items));
}

Result<std::size_t> limit_of(const Arguments& arguments, std::size_t place, const char* name) {
  const Value* const value = arguments.find(place, name);
  if (value == nullptr) return kAll;
  std::int64_t room = 0;
  const std::int64_t* const count = value->integer(&room);
  if (count == nullptr) return not_for(name, *value);
  return *count < 0 ? kAll : static_cast<std::size_t>(*count);
}

// ---- of strings ----

Result<Value> strip(const std::string& name, const Text& of, const Arguments& arguments,
                    Budget& budget) {
  PLEXRL_TRY(arguments.only(name, {"chars"}));
  const Text::Side side = name == "lstrip"   ? Text::Side::kLeft
                          : name == "rstrip" ? Text::Side::kRight
                                             : Text::Side::kBoth;
  const Value* const chars = arguments.find(0, "chars");
  if (chars == nullptr || chars->none()) return Value(of.stripped(side, nullptr));
  if (chars->text() == nullptr) return not_for(name, *chars);
  PLEXRL_TRY(budget.spend(of.size() * chars->text()->size()));
  return Value(of.stripped(side, &chars->text()->bytes()));
}

Result<Value> split(const Text& of, const Arguments& arguments, Budget& budget) {
  PLEXRL_TRY(arguments.only("split", {"sep", "maxsplit"}));
  PLEXRL_ASSIGN(const std::size_t most, limit_of(arguments, 1, "maxsplit"));
  const Value* const separator = arguments.find(0, "sep");
  // Each piece is a member, and there may be as many as bytes: before they are made.
  if (separator == nullptr || separator->none()) {
    PLEXRL_TRY(budget.members(std::min(of.size() / 2, most)));
    return list_of(of.split_at_space(most), budget);
  }
  if (separator->text() == nullptr || separator->text()->empty())
    return not_for("split", *separator);
  PLEXRL_TRY(budget.search(of.size(), separator->text()->size()));
  PLEXRL_TRY(budget.members(std::min(of.size() / separator->text()->size(), most)));
  return list_of(of.split(separator->text()->bytes(), most), budget);
}

Result<Value> replace(const Text& of, const Arguments& arguments, Budget& budget) {
  PLEXRL_TRY(arguments.only("replace", {"old", "new", "count"}));
  const Value* const from = arguments.find(0, "old");
  const Value* const to = arguments.find(1, "new");
  if (from == nullptr || to == nullptr || from->text() == nullptr || to->text() == nullptr ||
      from->text()->empty())
    return error(Code::INVALID_ARGUMENT, "chat template: 'replace' needs two strings");
  PLEXRL_ASSIGN(const std::size_t most, limit_of(arguments, 2, "count"));
  const std::size_t times = std::min(of.size() / from->text()->size(), most);
  PLEXRL_TRY(budget.search(of.size(), from->text()->size()));
  PLEXRL_TRY(budget.spend(times * to->text()->size()));
  return Value(of.replaced(from->text()->bytes(), *to->text(), most));
}

Result<Value> change_case(const std::string& name, const Text& of, const Arguments& arguments) {
  PLEXRL_TRY(arguments.only(name, {}));
  std::string bytes = of.bytes();
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (!std::all_of(bytes.begin(), bytes.end(), ascii))
    return error(Code::UNSUPPORTED, "chat template: '%s' of text that is not ASCII", name.c_str());
  const bool upper = name == "upper";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool large = upper || (name == "capitalize" && i == 0);
    if (large && bytes[i] >= 'a' && bytes[i] <= 'z') bytes[i] = static_cast<char>(bytes[i] - 32);
    if (!large && bytes[i] >= 'A' && bytes[i] <= 'Z') bytes[i] = static_cast<char>(bytes[i] + 32);
  }
  return Value(Text(std::move(bytes), of.any_given()));
}

// A string, or any of a list of them.
Result<Value> begins_or_ends(const std::string& name, const Text& of, const Arguments& arguments,
                             Budget& budget) {
  PLEXRL_TRY(arguments.only(name, {"prefix"}));
  const Value* const what = arguments.find(0, "prefix");
  if (what == nullptr)
    return error(Code::INVALID_ARGUMENT, "chat template: '%s' of nothing", name.c_str());
  const std::vector<Value> one = {*what};
  for (const Value& each : what->list() == nullptr ? one : what->list()->items) {
    if (each.text() == nullptr) return not_for(name, each);
    const std::string& part = each.text()->bytes();
    PLEXRL_TRY(budget.spend(Budget::kStep + std::min(part.size(), of.size())));
    if (name == "startswith" ? of.bytes().starts_with(part) : of.bytes().ends_with(part))
      return Value(true);
  }
  return Value(false);
}

Result<Value> text_method(const Text& of, const std::string& name, const Arguments& arguments,
                          Budget& budget) {
  PLEXRL_TRY(budget.spend(of.size()));
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return strip(name, of, arguments, budget);
  if (name == "startswith" || name == "endswith")
    return begins_or_ends(name, of, arguments, budget);
  if (name == "split") return split(of, arguments, budget);
  if (name == "replace") return replace(of, arguments, budget);
  if (name == "upper" || name == "lower" || name == "capitalize")
    return change_case(name, of, arguments);
  return no_such("the method", name);
}

// ---- of objects ----

Result<Value> pairs_of(const Object& object, Budget& budget) {
  PLEXRL_TRY(budget.members(3 * object.items.size()));
  std::vector<Value> pairs;
  for (const auto& [key, value] : object.items) {
    std::vector<Value> pair;
    pair.emplace_back(key);
    pair.push_back(value);
    PLEXRL_ASSIGN(pairs.emplace_back(), make_list(std::move(pair)));
  }
  return make_list(std::move(pairs));
}

Result<Value> object_method(const Object& of, const std::string& name, const Arguments& arguments,
                            Budget& budget) {
  if (name == "get") {
    PLEXRL_TRY(arguments.only(name, {"key", "default"}));
    const Value* const key = arguments.find(0, "key");
    if (key == nullptr || key->text() == nullptr)
      return error(Code::INVALID_ARGUMENT, "chat template: 'get' needs a string");
    PLEXRL_ASSIGN(const Value* const found, find(of, key->text()->bytes(), budget));
    if (found != nullptr) return *found;
    const Value* const other = arguments.find(1, "default");
    return other == nullptr ? Value(None{}) : *other;
  }
  PLEXRL_TRY(arguments.only(name, {}));
  if (name == "items") return pairs_of(of, budget);
  PLEXRL_TRY(budget.members(of.items.size()));
  std::vector<Value> items;
  if (name != "keys" && name != "values") return no_such("the method", name);
  for (const auto& [key, value] : of.items) {
    if (name == "keys")
      items.emplace_back(key);
    else
      items.push_back(value);
  }
  return make_list(std::move(items));
}

// ---- filters ----

Result<Value> join_filter(const Value& of, const Arguments& arguments, Budget& budget) {
  PLEXRL_TRY(arguments.only("join", {"d"}));
  PLEXRL_ASSIGN(const auto items, members(of, budget));
  const Value* const separator = arguments.find(0, "d");
  if (separator != nullptr && separator->text() == nullptr) return not_for("join", *separator);
  Text out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && separator != nullptr) {
      PLEXRL_TRY(budget.spend(separator->text()->size()));
      out.append(*separator->text());
    }
    PLEXRL_ASSIGN(const Text text, to_text(items[i], budget));
    out.append(text);
  }
  return Value(std::move(out));
}

Result<Value> json_filter(const Value& of, const Arguments& arguments, Budget& budget) {
  // Only by its name: its place is not the same everywhere.
  if (!arguments.values.empty())
    return error(Code::UNSUPPORTED, "chat template: 'tojson' of values without names");
  PLEXRL_TRY(arguments.only("tojson", {"indent"}));
  const Value* const indent = arguments.find(0, "indent");
  std::int64_t width = -1;
  std::int64_t room = 0;
  if (indent != nullptr && !indent->none()) {
    const std::int64_t* const given = indent->integer(&room);
    if (given == nullptr || *given < 0 || *given > 16) return not_for("tojson(indent)", *indent);
    width = *given;
  }
  PLEXRL_ASSIGN(Text text, to_json_text(of, static_cast<int>(width), budget));
  return Value(std::move(text));
}

Result<Value> default_filter(const Value& of, const Arguments& arguments) {
  PLEXRL_TRY(arguments.only("default", {"default_value", "boolean"}));
  const Value* const flag = arguments.find(1, "boolean");
  const bool also_false = flag != nullptr && flag->truth();
  if (!of.undefined() && (!also_false || of.truth())) return of;
  const Value* const other = arguments.find(0, "default_value");
  return other == nullptr ? Value(Text()) : *other;
}

Result<Value> int_filter(const Value& of) {
  std::int64_t value = 0;
  if (const std::int64_t* const whole = of.integer(&value)) return Value(*whole);
  if (of.text() == nullptr) return not_for("int", of);
  const std::string& text = of.text()->bytes();
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec == std::errc() && end.ptr == text.data() + text.size()) return Value(value);
  // Without a digit it is none, which counts as 0; with one it may be, such as 1.5 or 1_000.
  if (text.find_first_of("0123456789") == std::string::npos) return Value(std::int64_t{0});
  return error(Code::UNSUPPORTED, "chat template: 'int' of '%.40s'", text.c_str());
}

Result<Value> end_filter(const Value& of, bool first, Budget& budget) {
  PLEXRL_ASSIGN(auto items, members(of, budget));
  if (items.empty()) return Value(Undefined{first ? "first of nothing" : "last of nothing"});
  return first ? items.front() : items.back();
}

// ---- functions ----

Result<Value> range(const Arguments& arguments, Budget& budget) {
  PLEXRL_TRY(arguments.only("range", {"start", "stop", "step"}));
  std::array<std::int64_t, 3> numbers = {0, 0, 1};
  const std::size_t count = arguments.values.size();
  if (count < 1 || count > 3)
    return error(Code::INVALID_ARGUMENT, "chat template: 'range' of %zu numbers", count);
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t room = 0;
    const std::int64_t* const number = arguments.values[i].integer(&room);
    if (number == nullptr || *number < INT32_MIN || *number > INT32_MAX)
      return not_for("range", arguments.values[i]);
    numbers[i] = *number;
  }
  if (count == 1) std::swap(numbers[0], numbers[1]);
  const auto [begin, end, step] = numbers;
  if (step == 0) return error(Code::INVALID_ARGUMENT, "chat template: 'range' in steps of 0");
  const std::int64_t span = step > 0 ? end - begin : begin - end;
  const std::int64_t stride = step > 0 ? step : -step;
  PLEXRL_TRY(budget.members(span <= 0 ? 0 : static_cast<std::uint64_t>(span / stride + 1)));
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) items.emplace_back(i);
  return make_list(std::move(items));
}

Result<Value> make_namespace(const Arguments& arguments) {
  auto made = std::make_shared<Namespace>();
  for (const auto& [name, value] : arguments.named) {
    if (value.name_space() != nullptr) return not_for("namespace", value);
    made->items[name] = value;
  }
  if (!arguments.values.empty())
    return error(Code::UNSUPPORTED, "chat template: 'namespace' of values without names");
  return Value(std::move(made));
}

}  // namespace

const Value* Arguments::find(std::size_t place, const char* name) const {
  if (place < values.size()) return &values[place];
  for (const auto& one : named)
    if (one.first == name) return &one.second;
  return nullptr;
}

Status Arguments::only(const std::string& of, std::initializer_list<const char*> names) const {
  if (values.size() > names.size())
    return error(Code::INVALID_ARGUMENT, "chat template: '%s' of %zu arguments", of.c_str(),
                 values.size());
  for (const auto& one : named)
    if (std::find(names.begin(), names.end(), one.first) == names.end())
      return error(Code::INVALID_ARGUMENT, "chat template: '%s' of an argument '%s'", of.c_str(),
                   one.first.c_str());
  return {};
}

bool is_object_method(std::string_view name) {
  static constexpr std::array<std::string_view, 11> kMethods = {
      "items", "keys",  "values", "get",        "pop",     "popitem",
      "copy",  "clear", "update", "setdefault", "fromkeys"};
  return std::find(kMethods.begin(), kMethods.end(), name) != kMethods.end();
}

Result<std::vector<Value>> members(const Value& of, Budget& budget) {
  std::vector<Value> items;
  if (of.undefined()) return items;
  if (const List* const list = of.list()) {
    PLEXRL_TRY(budget.members(list->items.size()));
    return list->items;
  }
  if (const Object* const object = of.object()) {
    PLEXRL_TRY(budget.members(object->items.size()));
    for (const auto& item : object->items) items.emplace_back(item.first);
    return items;
  }
  const Text* const text = of.text();
  if (text == nullptr) return not_for("a loop", of);
  PLEXRL_TRY(budget.members(text->size()));
  const auto offsets = text->offsets();
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
    items.emplace_back(text->part(offsets[i], offsets[i + 1]));
  return items;
}

Result<std::int64_t> length(const Value& of, Budget& budget) {
  if (of.undefined()) return std::int64_t{0};
  if (of.list() != nullptr) return static_cast<std::int64_t>(of.list()->items.size());
  if (of.object() != nullptr) return static_cast<std::int64_t>(of.object()->items.size());
  if (of.text() == nullptr) return not_for("length", of);
  PLEXRL_TRY(budget.spend(9 * of.text()->size()));
  return static_cast<std::int64_t>(of.text()->characters());
}

Result<Value> apply_filter(const std::string& name, const Value& of, const Arguments& arguments,
                           Budget& budget) {
  if (name == "default" || name == "d") return default_filter(of, arguments);
  if (name == "tojson") return json_filter(of, arguments, budget);
  if (name == "join") return join_filter(of, arguments, budget);
  static constexpr std::array<std::string_view, 2> kWithArguments = {"trim", "replace"};
  if (std::find(kWithArguments.begin(), kWithArguments.end(), name) == kWithArguments.end())
    PLEXRL_TRY(arguments.only(name, {}));
  if (name == "length" || name == "count") {
    PLEXRL_ASSIGN(const std::int64_t count, length(of, budget));
    return Value(count);
  }
  if (name == "first" || name == "last") return end_filter(of, name == "first", budget);
  if (name == "int") return int_filter(of);
  if (name == "safe") return of;
  if (name == "list") {
    PLEXRL_ASSIGN(auto items, members(of, budget));
    return make_list(std::move(items));
  }
  if (name == "items") {
    if (of.undefined()) return make_list({});
    return of.object() == nullptr ? Result<Value>(not_for(name, of))
                                  : pairs_of(*of.object(), budget);
  }
  static constexpr std::array<std::string_view, 6> kOfText = {"trim",  "string",     "upper",
                                                              "lower", "capitalize", "replace"};
  if (std::find(kOfText.begin(), kOfText.end(), name) == kOfText.end())
    return no_such("the filter", name);
  PLEXRL_ASSIGN(const Text text, to_text(of, budget));  // as Jinja's soft_str
  if (name == "string") return Value(text);
  return text_method(text, name == "trim" ? "strip" : name, arguments, budget);
}

Result<bool> apply_test(const std::string& name, const Value& of) {
  const bool flag = of.as<bool>() != nullptr;
  const bool whole = of.as<std::int64_t>() != nullptr;
  const bool real = of.as<double>() != nullptr;
  const bool text = of.text() != nullptr;
  const bool object = of.object() != nullptr;
  const bool sequence = text || object || of.list() != nullptr;
  const std::map<std::string_view, bool> tests = {{"defined", !of.undefined()},
                                                  {"undefined", of.undefined()},
                                                  {"none", of.none()},
                                                  {"string", text},
                                                  {"mapping", object},
                                                  {"sequence", sequence},
                                                  {"iterable", sequence || of.undefined()},
                                                  {"number", flag || whole || real},
                                                  {"integer", whole},
                                                  {"float", real},
                                                  {"boolean", flag},
                                                  {"true", flag && of.truth()},
                                                  {"false", flag && !of.truth()}};
  const auto found = tests.find(name);
  if (found == tests.end()) return no_such("the test", name);
  return found->second;
}

Result<Value> call_method(const Value& of, const std::string& name, const Arguments& arguments,
                          Budget& budget) {
  if (of.text() != nullptr) return text_method(*of.text(), name, arguments, budget);
  if (of.object() != nullptr) return object_method(*of.object(), name, arguments, budget);
  return error(Code::INVALID_ARGUMENT, "chat template: '%s' is called of %s",
               name.substr(0, 40).c_str(), of.kind());
}

Result<Value> call_function(const std::string& name, const Arguments& arguments, Budget& budget) {
  if (name == "range") return range(arguments, budget);
  if (name == "namespace") return make_namespace(arguments);
  if (name != "raise_exception") return no_such("the function", name);
  const Value* const message = arguments.find(0, "message");
  if (message == nullptr) return error(Code::INVALID_ARGUMENT, "chat template: it refuses this");
  PLEXRL_ASSIGN(const Text text, to_text(*message, budget));
  return error(Code::INVALID_ARGUMENT, "chat template: it refuses this: %.200s",
               text.bytes().c_str());
}

}  // namespace plexrl::chat
