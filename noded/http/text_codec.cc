// SPDX-License-Identifier: Apache-2.0
#include "http/text_codec.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "chat/chat_template.h"
#include "http/chat_input.h"
#include "models/tokenizer_parts.h"
#include "tokenizer/utf8.h"

namespace plexrl::http {
namespace {

using nlohmann::json;

// Of one rendering, which holds the loop: some ten milliseconds (chat/chat_template.h).
constexpr std::uint64_t kRenderBudget = std::uint64_t{32} << 20;
constexpr std::size_t kMaxCharacters = 1U << 20;

// Bytes of the character that `text` begins with; 0: none.
std::size_t character_bytes(std::string_view text) {
  const tokenizer::Utf8Step step = tokenizer::utf8_step(text);
  return step.kind == tokenizer::Utf8::kCharacter ? step.bytes : 0;
}

// One token per character: {"type":"char","alphabet":"..."}.
class CharCodec final : public TextCodec {
 public:
  static Result<std::shared_ptr<const TextCodec>> parse(const json& description) {
    const auto alphabet = description.find("alphabet");
    if (alphabet == description.end() || !alphabet->is_string())
      return error(Code::INVALID_ARGUMENT, "tokenizer: 'alphabet' is missing");
    auto codec = std::make_shared<CharCodec>();
    const auto text = alphabet->get<std::string>();
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t bytes = character_bytes(rest);
      if (bytes == 0 || codec->characters_.size() == kMaxCharacters)
        return error(Code::INVALID_ARGUMENT, "tokenizer: 'alphabet' cannot be read");
      codec->ids_.emplace(rest.substr(0, bytes), static_cast<int>(codec->characters_.size()));
      codec->characters_.emplace_back(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    return std::shared_ptr<const TextCodec>(std::move(codec));
  }

  Result<Tokens> encode(std::string_view text, bool) const override {
    Tokens tokens;
    while (!text.empty()) {
      const std::size_t bytes = character_bytes(text);
      const auto found = ids_.find(text.substr(0, bytes));
      if (bytes == 0 || found == ids_.end())
        return error(Code::INVALID_ARGUMENT, "the model's alphabet does not have '%.*s'",
                     static_cast<int>(bytes), text.data());
      tokens.push_back(found->second);
      text.remove_prefix(bytes);
    }
    return tokens;
  }
  Result<Tokens> encode_chat(const ChatInput&) const override {
    return error(Code::UNSUPPORTED, "the model has no chat template; use /v1/completions");
  }
  std::string_view bytes_of(std::int32_t id) const override {
    const auto index = static_cast<std::size_t>(id);
    return index < characters_.size() ? std::string_view(characters_[index]) : std::string_view();
  }
  bool is_special(std::int32_t) const override { return false; }
  const Tokens& ends() const override { return ends_; }

 private:
  std::vector<std::string> characters_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
  Tokens ends_;
};

// models/tokenizer_description.h has the form.
class BpeCodec final : public TextCodec {
 public:
  static Result<std::shared_ptr<const TextCodec>> parse(const json& description) {
    PLEXRL_ASSIGN(model::TokenizerParts parts, model::read_tokenizer_parts(description));
    auto codec = std::make_shared<BpeCodec>();
    codec->tokenizer_ = std::move(parts.tokenizer);
    codec->ends_ = std::move(parts.ends);
    codec->tokens_ = parts.tokens;
    codec->read_template(parts.chat_template);
    return std::shared_ptr<const TextCodec>(std::move(codec));
  }

  Result<Tokens> encode(std::string_view text, bool add_special) const override {
    return tokenizer_->encode(text, {.add_special = add_special, .parse_special = true});
  }
  Result<Tokens> encode_chat(const ChatInput& input) const override {
    if (!template_) return template_error_;
    chat::RenderInput what;
    what.messages = input.messages;
    what.variables = input.variables;
    what.tokens = tokens_;
    what.add_generation_prompt = input.add_generation_prompt;
    what.budget = kRenderBudget;
    PLEXRL_ASSIGN(const chat::Text text, template_->render(what));
    if (text.size() > kMaxText)
      return error(Code::TOO_LARGE,
                   "the chat template makes %zu bytes of the messages; %zu are "
                   "possible",
                   text.size(), kMaxText);
    return tokenizer_->encode_marked(text.bytes(), text.given());
  }
  std::string_view bytes_of(std::int32_t id) const override { return tokenizer_->bytes_of(id); }
  bool is_special(std::int32_t id) const override { return tokenizer_->is_special(id); }
  const Tokens& ends() const override { return ends_; }

 private:
  void read_template(const std::string& text) {
    if (text.empty()) {
      template_error_ =
          error(Code::UNSUPPORTED, "the model has no chat template; use /v1/completions");
      return;
    }
    auto parsed = chat::ChatTemplate::parse(text);
    if (parsed) template_ = *std::move(parsed);
    if (!parsed) template_error_ = parsed.error().within("the model's chat template");
  }

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  Tokens ends_;
  std::optional<chat::ChatTemplate> template_;
  Status template_error_;
  nlohmann::ordered_json tokens_ = nlohmann::ordered_json::object();
};

}  // namespace

Result<std::shared_ptr<const TextCodec>> TextCodec::parse(std::string_view description) {
  const auto document = json::parse(description, nullptr, false);
  const auto type = document.is_object() ? document.value("type", json()) : json();
  if (type == "tokenizer.json") return BpeCodec::parse(document);
  if (type == "char") return CharCodec::parse(document);
  return error(Code::UNSUPPORTED,
               "the base has no tokenizer that is understood: send and take token ids "
               "(return_token_ids)");
}

std::string valid_text(std::string_view bytes) { return tokenizer::replace_invalid_utf8(bytes); }

std::string TextCodec::decode(const Tokens& tokens, bool skip_special) const {
  std::string bytes;
  for (const std::int32_t id : tokens) {
    if (skip_special && is_special(id)) continue;
    const std::string_view piece = bytes_of(id);
    bytes += piece.empty() ? tokenizer::kReplacement : piece;
  }
  return valid_text(bytes);
}

TextCodecs::~TextCodecs() {
  *alive_ = false;
  if (reader_.joinable()) reader_.join();
}

void TextCodecs::get(const std::string& base, const std::string& description, Ready ready) {
  if (const auto found = codecs_.find(base); found != codecs_.end()) return ready(found->second);
  auto& waiting = waiting_[base];
  waiting.push_back(std::move(ready));
  if (waiting.size() > 1) return;
  queue_.push_back({base, description});
  if (!reader_.joinable()) start_next();
}

void TextCodecs::start_next() {
  if (queue_.empty()) return;
  reader_ = std::thread([this, alive = alive_, post = post_, wanted = std::move(queue_.front())] {
    Made codec = TextCodec::parse(wanted.description);
    post([this, alive, base = wanted.base, codec = std::move(codec)] {
      if (*alive) made(base, codec);
    });
  });
  queue_.pop_front();
}

void TextCodecs::made(const std::string& base, Made codec) {
  reader_.join();
  const auto waiting = std::move(waiting_[base]);
  waiting_.erase(base);
  const Made& kept = codecs_.emplace(base, std::move(codec)).first->second;
  start_next();
  for (const Ready& ready : waiting) ready(kept);
}

}  // namespace plexrl::http
