// SPDX-License-Identifier: Apache-2.0
#include "cli/train/prompt_format.h"

#include <algorithm>

namespace plexrl::cli {
namespace {

// Stands for an answer in a rendering of which only what is behind it is wanted. The first one
// counts, so that an environment that writes it too changes nothing.
constexpr const char* kAnswer = "plexrl-answer-5c1f";

}  // namespace

Result<PromptFormat> PromptFormat::chat(const TextTokenizer& tokenizer, const std::string& system) {
  const ChatSource& source = tokenizer.chat();
  if (source.text.empty())
    return error(Code::UNSUPPORTED,
                 "--chat: the base has no chat template (chat_template.jinja, or chat_template in "
                 "tokenizer_config.json)");
  PromptFormat format(tokenizer);
  PLEXRL_ASSIGN(format.template_, chat::ChatTemplate::parse(source.text));
  format.system_ = system;
  PLEXRL_ASSIGN(const chat::Text end, format.behind_answer({}, false));
  PLEXRL_ASSIGN(const Tokens tokens, format.tokens_of(end));
  const auto found = std::find_if(tokens.begin(), tokens.end(),
                                  [&](std::int32_t token) { return tokenizer.is_special(token); });
  if (found != tokens.end()) format.turn_end_ = *found;
  return format;
}

Result<chat::Text> PromptFormat::render(const std::vector<Message>& messages, bool ask) const {
  chat::RenderInput input;
  input.messages = nlohmann::ordered_json::array();
  if (!system_.empty() && (messages.empty() || messages.front().role != "system"))
    input.messages.push_back({{"role", "system"}, {"content", system_}});
  for (const Message& message : messages)
    input.messages.push_back({{"role", message.role}, {"content", message.content}});
  for (const auto& [name, token] : tokenizer_.chat().tokens) input.tokens[name] = token;
  input.add_generation_prompt = ask;
  return template_->render(input);
}

Result<chat::Text> PromptFormat::behind_answer(const std::vector<Message>& messages,
                                               bool ask) const {
  std::vector<Message> all = {{"user", "?"}, {"assistant", kAnswer}};
  all.insert(all.end(), messages.begin(), messages.end());
  PLEXRL_ASSIGN(const chat::Text text, render(all, ask));
  const std::size_t at = text.bytes().find(kAnswer);
  if (at == std::string::npos)
    return error(Code::UNSUPPORTED, "chat template: it does not write what the assistant said");
  return text.part(at + std::string_view(kAnswer).size(), text.size());
}

Result<Tokens> PromptFormat::tokens_of(const chat::Text& text) const {
  return tokenizer_.encode_marked(text.bytes(), text.given());
}

Result<Tokens> PromptFormat::first(const Problem& problem) const {
  if (!template_.has_value()) return tokenizer_.encode_prompt(problem.prompt);
  const std::vector<Message> alone = {{"user", problem.prompt}};
  PLEXRL_ASSIGN(const chat::Text text,
                render(problem.messages.empty() ? alone : problem.messages, true));
  return tokens_of(text);
}

Result<Tokens> PromptFormat::next(const std::string& text, const std::vector<Message>& messages,
                                  std::int32_t last) const {
  if (!template_.has_value()) return tokenizer_.encode(text);
  const std::vector<Message> alone = {{"user", text}};
  PLEXRL_ASSIGN(const chat::Text rest, behind_answer(messages.empty() ? alone : messages, true));
  PLEXRL_ASSIGN(Tokens tokens, tokens_of(rest));
  // The model has written the end of its turn itself, unless it was cut or ended by another token.
  if (!tokens.empty() && tokens.front() == turn_end_ && last == turn_end_)
    tokens.erase(tokens.begin());
  return tokens;
}

Result<Tokens> PromptFormat::stop_tokens(const std::string& environment,
                                         const std::string& option) const {
  if (!template_.has_value()) return tokenizer_.stop_tokens(environment);
  auto stops = tokenizer_.stop_tokens(option);
  if (!turn_end_.has_value()) return stops;
  if (!stops.has_value()) {
    if (!option.empty()) return stops;
    return Tokens{*turn_end_};
  }
  std::erase(*stops, *turn_end_);
  stops->insert(stops->begin(), *turn_end_);
  return stops;
}

}  // namespace plexrl::cli
