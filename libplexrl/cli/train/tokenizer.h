// SPDX-License-Identifier: Apache-2.0
// TextTokenizer: text of a problem to tokens of the model and back, as the service's model
// information describes it (libplexrl(3), Tokenizer). Immutable.
//
// CharTokenizer: one token per character (Unicode code point):
// {"type":"char","alphabet":"0123456789+=>;ab?","vocab_size":32}.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

using Tokens = std::vector<std::int32_t>;

// What a chat template (chat/chat_template.h) is made of.
struct ChatSource {
  std::string text;                           // "": the model has no template
  std::map<std::string, std::string> tokens;  // that it may name: bos_token, eos_token
};

class TextTokenizer {
 public:
  virtual ~TextTokenizer() = default;
  // Text that goes on. What looks like a special token in it is text. INVALID_ARGUMENT: the model
  // cannot read it.
  [[nodiscard]] virtual Result<Tokens> encode(std::string_view text) const = 0;
  // The same for the beginning of a sequence: with the begin token of a model that wants one.
  [[nodiscard]] virtual Result<Tokens> encode_prompt(std::string_view text) const = 0;
  // A text that the model's chat template wrote. What looks like a special token is one, but for
  // those with a byte that `given`, as long as `text`, marks by not 0: it came from outside.
  [[nodiscard]] virtual Result<Tokens> encode_marked(std::string_view text,
                                                     std::string_view given) const = 0;
  [[nodiscard]] virtual bool is_special(std::int32_t token) const = 0;
  [[nodiscard]] virtual const ChatSource& chat() const = 0;
  // What is no character becomes U+FFFD.
  [[nodiscard]] virtual std::string decode(const Tokens& tokens) const = 0;
  // The tokens that end an answer, never none: the one that `text` (of --stop) is, and those that
  // the model ends by itself; "" stands for the model's own. An answer is taught to end with the
  // first. INVALID_ARGUMENT: `text` is not one token, or there is none.
  [[nodiscard]] virtual Result<Tokens> stop_tokens(const std::string& text) const = 0;
};

class CharTokenizer final : public TextTokenizer {
 public:
  // INVALID_ARGUMENT for anything that is not such a description.
  [[nodiscard]] static Result<CharTokenizer> parse(std::string_view json);

  // The error names the first character that the model does not know.
  [[nodiscard]] Result<Tokens> encode(std::string_view text) const override;
  [[nodiscard]] Result<Tokens> encode_prompt(std::string_view text) const override {
    return encode(text);
  }
  // No character is special, and there is no chat template.
  [[nodiscard]] Result<Tokens> encode_marked(std::string_view text,
                                             std::string_view) const override {
    return encode(text);
  }
  [[nodiscard]] bool is_special(std::int32_t) const override { return false; }
  [[nodiscard]] const ChatSource& chat() const override { return chat_; }
  // Ids without a character (padding of the vocabulary) become U+FFFD.
  [[nodiscard]] std::string decode(const Tokens& tokens) const override;
  // One character; by itself ';'.
  [[nodiscard]] Result<Tokens> stop_tokens(const std::string& text) const override;

 private:
  std::vector<std::string> characters_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
  ChatSource chat_;
};

// By the type of the description. UNSUPPORTED: another type, or a tokenizer.json that is not
// byte-level BPE.
[[nodiscard]] Result<std::unique_ptr<TextTokenizer>> make_tokenizer(std::string_view description);

}  // namespace plexrl::cli
