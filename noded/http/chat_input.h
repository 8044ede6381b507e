// SPDX-License-Identifier: Apache-2.0
// ChatInput: what a chat template is given for one request.
#pragma once

#include <nlohmann/json.hpp>

namespace plexrl::http {

struct ChatInput {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  bool add_generation_prompt = true;
};

}  // namespace plexrl::http
