// SPDX-License-Identifier: Apache-2.0
#include "config/section_reader.h"

namespace plexrl::config {

void SectionReader::complain(int line, const std::string& key, const std::string& text) {
  wrong_.insert(key);
  std::string where = section_;
  if (!key.empty()) where += (where.empty() ? "" : ".") + key;
  errors_->add(line, where.empty() ? text : where + ": " + text);
}

void SectionReader::unknown(int line, const std::string& key,
                            const std::vector<std::string>& known) {
  const std::string suggestion = nearest(key, known);
  complain(line, key.substr(0, 80),
           suggestion.empty() ? "unknown key" : "unknown key; did you mean '" + suggestion + "'?");
}

bool SectionReader::scalar(const YAML::Node& node, const std::string& key, std::string* out) {
  if (!node.IsScalar()) {
    complain(node.Mark().line, key, "expected one value");
    return false;
  }
  *out = node.Scalar();
  return true;
}

bool SectionReader::text(const YAML::Node& node, const std::string& key, Form form,
                         const char* words, std::string* out) {
  std::string value;
  if (!scalar(node, key, &value)) return false;
  if (const Status status = check_text(form, words, value); !status.ok()) {
    complain(node.Mark().line, key, status.text());
    return false;
  }
  *out = value;
  return true;
}

// A single value counts as a list of one.
void SectionReader::list(const YAML::Node& node, const std::string& key, Form form,
                         const char* words, std::vector<std::string>* out) {
  out->clear();
  if (node.IsScalar()) {
    std::string value;
    if (text(node, key, form, words, &value)) out->push_back(value);
    return;
  }
  if (!node.IsSequence()) return complain(node.Mark().line, key, "expected a list");
  for (const YAML::Node& item : node) {
    std::string value;
    if (!text(item, key, form, words, &value)) continue;
    if (std::find(out->begin(), out->end(), value) != out->end())
      complain(item.Mark().line, key, "'" + value + "' is listed twice");
    out->push_back(value);
  }
}

}  // namespace plexrl::config
