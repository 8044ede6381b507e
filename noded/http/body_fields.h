// SPDX-License-Identifier: Apache-2.0
// BodyFields: reads the fields of a JSON body one by one and remembers the first that is wrong.
// null counts as absent, as clients send it for what was not set.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::http {

using Json = nlohmann::ordered_json;

// An object of at most 32 levels, none with more than 256 keys; linear in the text.
[[nodiscard]] Result<Json> parse_body(std::string_view text);

class BodyFields {
 public:
  explicit BodyFields(const Json& body) : body_(body) {}

  // nullptr when it is absent or null.
  [[nodiscard]] const Json* find(const char* name) const;
  // They leave `value` alone when the field is absent or wrong.
  void read(const char* name, bool* value);
  void read(const char* name, std::string* value);
  void read(const char* name, float* value, float least, float most);
  void read(const char* name, std::uint32_t* value, std::uint32_t least, std::uint32_t most);
  void read(const char* name, std::vector<std::int32_t>* ids);

  [[nodiscard]] bool is_number(const char* name, double* value) const;
  void refuse(const char* name, Status why);
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const std::string& field() const { return field_; }

 private:
  const Json& body_;
  Status status_;
  std::string field_;
};

// A list of token ids. INVALID_ARGUMENT without the field's name.
[[nodiscard]] Result<std::vector<std::int32_t>> token_ids(const Json& list);

}  // namespace plexrl::http
