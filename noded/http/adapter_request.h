// SPDX-License-Identifier: Apache-2.0
// The JSON bodies of /v1/load_lora_adapter and /v1/unload_lora_adapter as values; other fields are
// ignored. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace plexrl::http {

struct AdapterRequest {
  std::string name;       // a part of a model's name
  std::string path;       // of a load: not empty
  bool in_place = false;  // the name may be loaded already
};

// INVALID_ARGUMENT, TOO_LARGE; `field` as in completion_request.h.
[[nodiscard]] Result<AdapterRequest> parse_load_adapter(std::string_view body, std::string* field);
[[nodiscard]] Result<AdapterRequest> parse_unload_adapter(std::string_view body,
                                                          std::string* field);

}  // namespace plexrl::http
