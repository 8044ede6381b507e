// SPDX-License-Identifier: Apache-2.0
#include "config/config_text.h"

#include <nlohmann/json.hpp>

#include "config/config_keys.h"
#include "config/value_check.h"

namespace plexrl::config {
namespace {

using Json = nlohmann::ordered_json;

std::string spaced(const std::string& words) {
  std::string text;
  for (const std::string& word : split_words(words)) text += (text.empty() ? "" : ", ") + word;
  return text;
}

template <class Section>
Json section_json(const Section& section, std::span<const Key<Section>> keys) {
  Json json = Json::object();
  for (const Key<Section>& key : keys)
    std::visit([&](auto field) { json[key.name] = section.*field; }, key.field);
  return json;
}

template <class Entry>
Json list_json(const std::vector<Entry>& entries, std::span<const Key<Entry>> keys) {
  Json json = Json::array();
  for (const Entry& entry : entries) json.push_back(section_json(entry, keys));
  return json;
}

Json config_json(const SiteConfig& config) {
  Json json = section_json(config, site_keys());
  json["pools"] = list_json(config.pools, pool_keys());
  json["models"] = list_json(config.models, model_keys());
  json["daemon"] = section_json(config.daemon, daemon_keys());
  return json;
}

// Empty texts and lists are left out: a key without a value is an error, its absence the default.
bool is_set(const Json& value) {
  return value.is_number() || (value.is_string() && !value.get<std::string>().empty()) ||
         (value.is_array() && !value.empty());
}

// A value as YAML flow; JSON text is YAML.
void append_keys(const Json& section, const std::string& first, const std::string& indent,
                 std::string* out) {
  std::string lead = first;
  for (const auto& [name, value] : section.items()) {
    if (!is_set(value)) continue;
    *out += lead + name + ": " + value.dump() + "\n";
    lead = indent;
  }
}

// ---- manual ----

template <class Section>
std::string default_text(const Key<Section>& key) {
  if (key.required) return "Required.";
  const Section defaults;
  return std::visit(
      [&](auto field) -> std::string {
        using Value = std::remove_cvref_t<decltype(defaults.*field)>;
        if constexpr (std::is_integral_v<Value>)
          return "Default: " + std::to_string(defaults.*field) + ".";
        else if constexpr (std::is_same_v<Value, std::string>)
          return (defaults.*field).empty() ? "" : "Default: " + defaults.*field + ".";
        else
          return "";
      },
      key.field);
}

template <class Section>
std::string range_text(const Key<Section>& key) {
  if (key.form == Form::kNumber)
    return "Range: " + std::to_string(key.min) + " to " + std::to_string(key.max) + ".";
  if (key.form == Form::kWord) return "Values: " + spaced(key.words) + ".";
  return "";
}

template <class Section>
bool is_list(const Key<Section>& key) {
  return std::holds_alternative<std::vector<std::string> Section::*>(key.field);
}

const char* form_name(Form form) {
  switch (form) {
    case Form::kName:
      return "name";
    case Form::kUser:
      return "account";
    case Form::kPath:
      return "path";
    case Form::kHosts:
      return "hosts";
    case Form::kWord:
      return "word";
    case Form::kNumber:
      return "number";
    case Form::kAddress:
      return "address";
  }
  return "";
}

// mdoc wants each sentence on a line of its own, and lines of at most 80 characters.
std::string sentences(const std::string& text) {
  std::string out;
  std::size_t column = 0;
  for (const std::string& word : split_words(text)) {
    const bool ends = !out.empty() && out.back() == '.';
    const bool full = column + word.size() > 78;
    if (column != 0) out += ends || full ? '\n' : ' ';
    column = (ends || full ? 0 : column) + word.size() + 1;
    out += word;
  }
  return out;
}

template <class Section>
std::string key_list(std::span<const Key<Section>> keys) {
  std::string text = ".Bl -tag -width Ds\n";
  for (const Key<Section>& key : keys) {
    text += std::string(".It Cm ") + key.name + " : Ar " + form_name(key.form) +
            (is_list(key) ? " ...\n" : "\n") + sentences(key.doc) + "\n";
    for (const std::string& line : {range_text(key), default_text(key)})
      if (!line.empty()) text += line + "\n";
  }
  return text + ".El\n";
}

}  // namespace

std::string dump_yaml(const SiteConfig& config) {
  const Json json = config_json(config);
  std::string text;
  for (const Key<SiteConfig>& key : site_keys())
    text += std::string(key.name) + ": " + json[key.name].dump() + "\n";
  for (const char* list : {"pools", "models"}) {
    text += std::string(list) + ":\n";
    for (const Json& entry : json[list]) append_keys(entry, "  - ", "    ", &text);
  }
  text += "daemon:\n";
  append_keys(json["daemon"], "  ", "  ", &text);
  return text;
}

std::string dump_json(const SiteConfig& config) { return config_json(config).dump(2) + "\n"; }

std::string key_list_mdoc(const std::string& section) {
  if (section == "site") return key_list(site_keys());
  if (section == "pools") return key_list(pool_keys());
  if (section == "models") return key_list(model_keys());
  if (section == "daemon") return key_list(daemon_keys());
  return {};
}

}  // namespace plexrl::config
