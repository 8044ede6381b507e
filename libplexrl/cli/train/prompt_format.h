// SPDX-License-Identifier: Apache-2.0
// PromptFormat: what the model is asked, as tokens. Plain: the text of the problem. In a chat: what
// the model's own chat template makes of messages, up to where the model is to answer. What comes
// from outside (a file, an environment) never becomes a special token. Immutable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "cli/train/environment.h"
#include "cli/train/tokenizer.h"

namespace plexrl::cli {

class PromptFormat {
 public:
  // Plain. `tokenizer` outlives it.
  explicit PromptFormat(const TextTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // `system` goes before messages that do not begin with one of that role; "": none. UNSUPPORTED,
  // INVALID_ARGUMENT: the model has no chat template, or one that is not understood.
  [[nodiscard]] static Result<PromptFormat> chat(const TextTokenizer& tokenizer,
                                                 const std::string& system);

  [[nodiscard]] bool is_chat() const { return template_.has_value(); }
  [[nodiscard]] Result<Tokens> first(const Problem& problem) const;
  // What stands between an answer, whose tokens end with `last`, and the next: the text or messages
  // of the environment, of which `text` counts when there are no messages. The answers before are
  // not looked at: what the model has said stays, token for token.
  [[nodiscard]] Result<Tokens> next(const std::string& text, const std::vector<Message>& messages,
                                    std::int32_t last) const;
  // What ends an answer, never nothing; it is taught to end with the first. Plain: `environment`,
  // and what the model ends by itself. In a chat: what the template ends a turn with, `option`
  // ("": none) and what the model ends by itself. INVALID_ARGUMENT as TextTokenizer::stop_tokens.
  [[nodiscard]] Result<Tokens> stop_tokens(const std::string& environment,
                                           const std::string& option) const;

 private:
  [[nodiscard]] Result<chat::Text> render(const std::vector<Message>& messages, bool ask) const;
  // What the template writes behind an answer.
  [[nodiscard]] Result<chat::Text> behind_answer(const std::vector<Message>& messages,
                                                 bool ask) const;
  [[nodiscard]] Result<Tokens> tokens_of(const chat::Text& text) const;

  const TextTokenizer& tokenizer_;
  std::optional<chat::ChatTemplate> template_;  // none: plain
  std::string system_;
  std::optional<std::int32_t> turn_end_;  // special token that the template ends an answer with
};

}  // namespace plexrl::cli
