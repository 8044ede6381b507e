// SPDX-License-Identifier: Apache-2.0
// TextCodec: text to tokens of a base and back, by the description that its engine gives (of a
// tokenizer.json, or one token per character). Immutable, any thread.
//
// TextCodecs: the codecs of a node by base. A tokenizer takes up to a second to be read, which a
// thread of its own does, one at a time. Loop thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "http/completion_request.h"

namespace plexrl::http {

class TextCodec {
 public:
  virtual ~TextCodec() = default;
  // UNSUPPORTED, INVALID_ARGUMENT: the base has no description that is understood.
  [[nodiscard]] static Result<std::shared_ptr<const TextCodec>> parse(std::string_view description);

  // INVALID_ARGUMENT: the model cannot read it. Special tokens that the text spells are tokens.
  [[nodiscard]] virtual Result<Tokens> encode(std::string_view text, bool add_special) const = 0;
  // By the model's chat template; what the messages bring is never a special token. UNSUPPORTED:
  // there is no template. TOO_LARGE: more than kMaxText.
  [[nodiscard]] virtual Result<Tokens> encode_chat(const ChatInput& input) const = 0;
  // "" for an id that is not there.
  [[nodiscard]] virtual std::string_view bytes_of(std::int32_t id) const = 0;
  [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;
  // Tokens that end an answer by the model's own files.
  [[nodiscard]] virtual const Tokens& ends() const = 0;

  // What is no character becomes U+FFFD.
  [[nodiscard]] std::string decode(const Tokens& tokens, bool skip_special) const;
};

// `bytes` as UTF-8, with U+FFFD for what is no character.
[[nodiscard]] std::string valid_text(std::string_view bytes);

class TextCodecs {
 public:
  using Ready = std::function<void(const Result<std::shared_ptr<const TextCodec>>&)>;
  using Post = std::function<void(std::function<void()>)>;  // runs it later, on the loop's thread

  explicit TextCodecs(Post post) : post_(std::move(post)) {}
  TextCodecs(const TextCodecs&) = delete;
  TextCodecs& operator=(const TextCodecs&) = delete;
  ~TextCodecs();

  // Calls `ready` at once when the base's codec is there (or could not be made), else later.
  void get(const std::string& base, const std::string& description, Ready ready);

 private:
  using Made = Result<std::shared_ptr<const TextCodec>>;
  struct Wanted {
    std::string base, description;
  };
  void start_next();
  void made(const std::string& base, Made codec);

  Post post_;
  std::map<std::string, Made> codecs_;
  std::map<std::string, std::vector<Ready>> waiting_;
  std::deque<Wanted> queue_;
  std::thread reader_;
  // What the thread posts finds out by it whether this is still there.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace plexrl::http
