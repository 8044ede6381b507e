// SPDX-License-Identifier: Apache-2.0
// read_section: one mapping of plexrl.yaml into one structure, by the table of its keys. Every
// error is added to the list; reading goes on, so that a user sees all of them at once.
#pragma once

#include <map>
#include <set>

#include "config/value_check.h"
#include "config/yaml_document.h"

namespace plexrl::config {

// Lines (from 0) on which the keys of one section were found.
using KeyLines = std::map<std::string, int>;

class SectionReader {
 public:
  SectionReader(std::string section, ErrorList* errors)
      : section_(std::move(section)), errors_(errors) {}

  // `sections`: names beside the keys that the caller reads itself.
  template <class Section>
  KeyLines read(const YAML::Node& node, std::span<const Key<Section>> keys,
                const std::vector<std::string>& sections, Section* out);

  // Keys whose values are not to be relied on.
  [[nodiscard]] const std::set<std::string>& wrong() const { return wrong_; }

 private:
  void complain(int line, const std::string& key, const std::string& text);
  void unknown(int line, const std::string& key, const std::vector<std::string>& known);
  // Empty when the node is not a single value.
  bool scalar(const YAML::Node& node, const std::string& key, std::string* out);
  bool text(const YAML::Node& node, const std::string& key, Form form, const char* words,
            std::string* out);
  void list(const YAML::Node& node, const std::string& key, Form form, const char* words,
            std::vector<std::string>* out);
  template <class Number>
  void number(const YAML::Node& node, const std::string& key, std::uint64_t min, std::uint64_t max,
              Number* out);
  template <class Section>
  void store(const YAML::Node& node, const Key<Section>& key, Section* out);

  std::string section_;
  ErrorList* errors_;
  std::set<std::string> wrong_;
};

}  // namespace plexrl::config

#include "config/section_reader_inl.h"
