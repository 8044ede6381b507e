// SPDX-License-Identifier: Apache-2.0
#include "cli/document.h"

#include "cli/output.h"

namespace plexrl::cli {
namespace {

const nlohmann::json* find(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

const nlohmann::json* find_number(const nlohmann::json& object, const char* name) {
  const nlohmann::json* value = find(object, name);
  return value != nullptr && value->is_number() ? value : nullptr;
}

}  // namespace

std::string cell(const nlohmann::json& object, const char* name) {
  const nlohmann::json* value = find(object, name);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  if (value->is_boolean()) return value->get<bool>() ? "yes" : "no";
  return value->is_number_integer() ? value->dump() : "";
}

std::string cell_bytes(const nlohmann::json& object, const char* name) {
  const nlohmann::json* value = find_number(object, name);
  return value == nullptr ? "" : format_bytes(value->get<std::uint64_t>());
}

std::string cell_seconds(const nlohmann::json& object, const char* name) {
  const nlohmann::json* value = find_number(object, name);
  return value == nullptr ? "" : format_seconds(value->get<double>());
}

std::string cell_fixed(const nlohmann::json& object, const char* name, int decimals) {
  const nlohmann::json* value = find_number(object, name);
  return value == nullptr ? "" : format_fixed(value->get<double>(), decimals);
}

const nlohmann::json& items(const nlohmann::json& object, const char* name) {
  static const nlohmann::json kNone = nlohmann::json::array();
  const nlohmann::json* value = find(object, name);
  return value != nullptr && value->is_array() ? *value : kNone;
}

const nlohmann::json& member(const nlohmann::json& object, const char* name) {
  static const nlohmann::json kNone = nlohmann::json::object();
  const nlohmann::json* value = find(object, name);
  return value != nullptr && value->is_object() ? *value : kNone;
}

}  // namespace plexrl::cli
