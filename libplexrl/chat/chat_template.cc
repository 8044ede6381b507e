// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include "chat/evaluator.h"

namespace plexrl::chat {
namespace {

Status add_variables(const nlohmann::ordered_json& from, bool given, Variables* to) {
  if (!from.is_object())
    return error(Code::INVALID_ARGUMENT, "chat template: its variables are not an object");
  for (const auto& [name, value] : from.items()) {
    PLEXRL_ASSIGN((*to)[name], from_json(value, given));
  }
  return {};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSource)
    return error(Code::TOO_LARGE, "chat template: %zu bytes, at most %zu", source.size(),
                 kMaxSource);
  PLEXRL_ASSIGN(Block block, chat::parse(source));
  return ChatTemplate(std::move(block));
}

Result<Text> ChatTemplate::render(const RenderInput& input) const {
  if (!input.messages.is_array())
    return error(Code::INVALID_ARGUMENT, "chat template: the messages are not a list");
  Variables globals;
  PLEXRL_TRY(add_variables(input.variables, true, &globals));
  PLEXRL_TRY(add_variables(input.tokens, false, &globals));
  PLEXRL_ASSIGN(globals["messages"], from_json(input.messages, true));
  PLEXRL_ASSIGN(globals["tools"], from_json(input.tools, true));
  globals["add_generation_prompt"] = Value(input.add_generation_prompt);
  Budget budget(input.budget);
  return Evaluator(std::move(globals), budget).run(block_);
}

}  // namespace plexrl::chat
