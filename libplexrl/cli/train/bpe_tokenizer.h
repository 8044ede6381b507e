// SPDX-License-Identifier: Apache-2.0
// BpeTokenizer: the byte-level BPE of a model's tokenizer.json, described as
// models/tokenizer_description.h says.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/train/tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace plexrl::cli {

class BpeTokenizer final : public TextTokenizer {
 public:
  // INVALID_ARGUMENT: not such a description, or more tokens than the model has. UNSUPPORTED: not
  // byte-level BPE.
  [[nodiscard]] static Result<std::unique_ptr<TextTokenizer>> parse(
      const nlohmann::json& description);

  [[nodiscard]] Result<Tokens> encode(std::string_view text) const override;
  [[nodiscard]] Result<Tokens> encode_prompt(std::string_view text) const override;
  [[nodiscard]] Result<Tokens> encode_marked(std::string_view text,
                                             std::string_view given) const override;
  [[nodiscard]] bool is_special(std::int32_t token) const override {
    return tokenizer_->is_special(token);
  }
  [[nodiscard]] const ChatSource& chat() const override { return chat_; }
  [[nodiscard]] std::string decode(const Tokens& tokens) const override;
  [[nodiscard]] Result<Tokens> stop_tokens(const std::string& text) const override;

 private:
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  Tokens ends_;
  ChatSource chat_;
};

}  // namespace plexrl::cli
