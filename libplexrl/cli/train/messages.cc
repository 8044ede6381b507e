// SPDX-License-Identifier: Apache-2.0
#include "cli/train/messages.h"

namespace plexrl::cli {

Result<std::vector<Message>> read_messages(const nlohmann::json& list) {
  if (!list.is_array() || list.empty())
    return error(Code::INVALID_ARGUMENT, "\"messages\" is not a list of some messages");
  std::vector<Message> messages;
  for (const nlohmann::json& one : list) {
    const bool sound = one.is_object() && one.contains("role") && one["role"].is_string() &&
                       one.contains("content") && one["content"].is_string();
    if (!sound)
      return error(Code::INVALID_ARGUMENT, R"(a message is not {"role":"...","content":"..."})");
    messages.push_back({one["role"].get<std::string>(), one["content"].get<std::string>()});
  }
  return messages;
}

}  // namespace plexrl::cli
