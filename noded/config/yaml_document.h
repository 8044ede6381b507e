// SPDX-License-Identifier: Apache-2.0
// YamlDocument: one small, plain YAML document, and the list of what is wrong in it. Bounded before
// anything is built: 1 MiB of text, 16 levels, 100,000 values; no anchors, aliases or tags, so that
// a short text cannot stand for a large tree. yaml-cpp's exceptions end here.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace plexrl::config {

constexpr std::size_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxYamlDepth = 16;
constexpr int kMaxYamlValues = 100000;

// Collects "file:line: text" lines; the file is reported as a whole, not error by error.
class ErrorList {
 public:
  explicit ErrorList(std::string_view file) : file_(file) {}

  // `line` counts from 0, as yaml-cpp does.
  void add(int line, const std::string& text);
  [[nodiscard]] bool empty() const { return text_.empty(); }
  // INVALID_ARGUMENT with all lines, or OK.
  [[nodiscard]] Status status() const;

 private:
  static constexpr int kMaxErrors = 100;
  std::string file_;
  std::string text_;
  int count_ = 0;
};

// The root node of the document. Errors go to `errors`; then the node is undefined.
[[nodiscard]] YAML::Node read_yaml(std::string_view text, ErrorList* errors);

}  // namespace plexrl::config
