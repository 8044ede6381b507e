// SPDX-License-Identifier: Apache-2.0
// The templates of SectionReader; included by section_reader.h only.
#pragma once

#include <algorithm>

namespace plexrl::config {

template <class Number>
void SectionReader::number(const YAML::Node& node, const std::string& key, std::uint64_t min,
                           std::uint64_t max, Number* out) {
  std::string word;
  if (!scalar(node, key, &word)) return;
  const std::uint64_t limit = std::min<std::uint64_t>(max, std::numeric_limits<Number>::max());
  const Result<std::uint64_t> value = parse_number(word, min, limit);
  if (!value) return complain(node.Mark().line, key, value.error().text());
  *out = static_cast<Number>(*value);
}

template <class Section>
void SectionReader::store(const YAML::Node& node, const Key<Section>& key, Section* out) {
  std::visit(
      [&](auto field) {
        using Value = std::remove_reference_t<decltype(out->*field)>;
        if constexpr (std::is_integral_v<Value>)
          number(node, key.name, key.min, key.max, &(out->*field));
        else if constexpr (std::is_same_v<Value, std::string>)
          (void)text(node, key.name, key.form, key.words, &(out->*field));
        else
          list(node, key.name, key.form, key.words, &(out->*field));
      },
      key.field);
}

template <class Section>
KeyLines SectionReader::read(const YAML::Node& node, std::span<const Key<Section>> keys,
                             const std::vector<std::string>& sections, Section* out) {
  KeyLines seen;
  if (!node.IsMap()) {
    complain(node.Mark().line, "", "expected keys with values");
    return seen;
  }
  std::vector<std::string> known = sections;
  for (const Key<Section>& key : keys) known.emplace_back(key.name);
  for (const auto& pair : node) {
    const int line = pair.first.Mark().line;
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : std::string();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      unknown(line, name, known);
      continue;
    }
    if (!seen.emplace(name, line).second) complain(line, name, "given twice");
    for (const Key<Section>& key : keys)
      if (name == key.name) store(pair.second, key, out);
  }
  for (const Key<Section>& key : keys)
    if (key.required && seen.count(key.name) == 0) complain(node.Mark().line, key.name, "missing");
  return seen;
}

}  // namespace plexrl::config
