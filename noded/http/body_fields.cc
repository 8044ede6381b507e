// SPDX-License-Identifier: Apache-2.0
#include "http/body_fields.h"

#include <array>
#include <cmath>

namespace plexrl::http {
namespace {

constexpr std::size_t kMaxDepth = 32;
// nlohmann's ordered objects look a key up by walking all of them.
constexpr std::size_t kMaxKeys = 256;

// Before anything is built of it: brackets and colons outside of strings.
Status check_shape(std::string_view text) {
  std::array<std::size_t, kMaxDepth + 1> keys{};
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth)
        return error(Code::TOO_LARGE, "the body is nested more than %zu levels deep", kMaxDepth);
      keys[depth] = 0;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    } else if (c == ':' && ++keys[depth] > kMaxKeys) {
      return error(Code::TOO_LARGE, "an object of the body has more than %zu fields", kMaxKeys);
    }
  }
  return {};
}

bool is_id(const Json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= INT32_MAX;
}

}  // namespace

Result<Json> parse_body(std::string_view text) {
  PLEXRL_TRY(check_shape(text));
  try {
    Json body = Json::parse(text);
    if (body.is_object()) return body;
  } catch (const nlohmann::json::exception& e) {
    return error(Code::INVALID_ARGUMENT, "the body is not JSON: %.200s", e.what());
  }
  return error(Code::INVALID_ARGUMENT, "the body is not a JSON object");
}

Result<std::vector<std::int32_t>> token_ids(const Json& list) {
  if (!list.is_array()) return error(Code::INVALID_ARGUMENT, "a list of token ids is needed");
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (const Json& value : list) {
    if (!is_id(value))
      return error(Code::INVALID_ARGUMENT, "element %zu is not a token id", ids.size());
    ids.push_back(value.get<std::int32_t>());
  }
  return ids;
}

const Json* BodyFields::find(const char* name) const {
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

void BodyFields::refuse(const char* name, Status why) {
  if (!status_.ok()) return;
  field_ = name;
  status_ = why.within("'" + field_ + "'");
}

void BodyFields::read(const char* name, bool* value) {
  const Json* const found = find(name);
  if (found == nullptr) return;
  if (found->is_boolean()) {
    *value = found->get<bool>();
  } else {
    refuse(name, error(Code::INVALID_ARGUMENT, "true or false is needed"));
  }
}

void BodyFields::read(const char* name, std::string* value) {
  const Json* const found = find(name);
  if (found == nullptr) return;
  if (found->is_string()) {
    *value = found->get<std::string>();
  } else {
    refuse(name, error(Code::INVALID_ARGUMENT, "a string is needed"));
  }
}

void BodyFields::read(const char* name, float* value, float least, float most) {
  const Json* const found = find(name);
  if (found == nullptr) return;
  const double number = found->is_number() ? found->get<double>() : NAN;
  if (number >= double{least} && number <= double{most}) {
    *value = static_cast<float>(number);
  } else {
    refuse(name, error(Code::INVALID_ARGUMENT, "a number from %g to %g is needed", double{least},
                       double{most}));
  }
}

void BodyFields::read(const char* name, std::uint32_t* value, std::uint32_t least,
                      std::uint32_t most) {
  const Json* const found = find(name);
  if (found == nullptr) return;
  const bool whole = found->is_number_unsigned();
  const std::uint64_t number = whole ? found->get<std::uint64_t>() : 0;
  if (whole && number >= least && number <= most) {
    *value = static_cast<std::uint32_t>(number);
  } else {
    refuse(name,
           error(Code::INVALID_ARGUMENT, "a whole number from %u to %u is needed", least, most));
  }
}

void BodyFields::read(const char* name, std::vector<std::int32_t>* ids) {
  const Json* const found = find(name);
  if (found == nullptr) return;
  auto read = token_ids(*found);
  if (read) {
    *ids = *std::move(read);
  } else {
    refuse(name, read.error());
  }
}

bool BodyFields::is_number(const char* name, double* value) const {
  const Json* const found = find(name);
  if (found == nullptr || !found->is_number()) return false;
  *value = found->get<double>();
  return true;
}

}  // namespace plexrl::http
