// SPDX-License-Identifier: Apache-2.0
#include "config/yaml_document.h"

#include <yaml-cpp/eventhandler.h>

#include <sstream>

namespace plexrl::config {
namespace {

// Looks at a document without building it.
class Bounds final : public YAML::EventHandler {
 public:
  explicit Bounds(ErrorList* errors) : errors_(errors) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { value(mark, "", anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    complain(mark, "aliases (*name) are not allowed: write the value again");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string&) override {
    value(mark, tag, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    value(mark, tag, anchor);
    enter(mark);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    value(mark, tag, anchor);
    enter(mark);
  }
  void OnMapEnd() override { --depth_; }

 private:
  void value(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) complain(mark, "anchors (&name) are not allowed");
    if (!tag.empty() && tag != "?" && tag != "!") complain(mark, "tags (!name) are not allowed");
    if (++values_ == kMaxYamlValues) complain(mark, "too many values");
  }
  void enter(const YAML::Mark& mark) {
    if (++depth_ == kMaxYamlDepth) complain(mark, "nested too deeply");
  }
  void complain(const YAML::Mark& mark, const std::string& text) { errors_->add(mark.line, text); }

  ErrorList* errors_;
  int depth_ = 0;
  int values_ = 0;
};

YAML::Node read_checked(const std::string& text, ErrorList* errors) {
  std::istringstream first(text);
  YAML::Parser parser(first);
  Bounds bounds(errors);
  parser.HandleNextDocument(bounds);
  if (!errors->empty()) return YAML::Node(YAML::NodeType::Undefined);
  return YAML::Load(text);
}

}  // namespace

void ErrorList::add(int line, const std::string& text) {
  if (++count_ > kMaxErrors) return;
  if (!text_.empty()) text_ += '\n';
  text_ += file_ + ":" + std::to_string(line + 1) + ": " + text;
  if (count_ == kMaxErrors) text_ += "\n" + file_ + ": more errors are not shown";
}

Status ErrorList::status() const {
  return empty() ? Status() : Status(Code::INVALID_ARGUMENT, text_);
}

YAML::Node read_yaml(std::string_view text, ErrorList* errors) {
  if (text.size() > kMaxConfigBytes) {
    errors->add(0, "the file is larger than 1 MiB");
    return YAML::Node(YAML::NodeType::Undefined);
  }
  try {
    return read_checked(std::string(text), errors);
  } catch (const YAML::Exception& failure) {
    errors->add(failure.mark.line, failure.msg);
  } catch (const std::exception& failure) {
    errors->add(0, failure.what());
  }
  return YAML::Node(YAML::NodeType::Undefined);
}

}  // namespace plexrl::config
