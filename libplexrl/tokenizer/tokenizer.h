// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back by byte-level BPE, as Llama 3, SmolLM2, Qwen2 and Qwen3
// have it. Text is cut at added tokens, normalised, cut into words by the model's patterns, and
// each word's bytes are merged. Ids are those of the `tokenizers` library. Immutable and shared,
// any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_pairs.h"
#include "tokenizer/text_splitter.h"

namespace plexrl::tokenizer {

// A space in front of a piece that begins with none.
struct PrefixSpace {};
using WordStep = std::variant<TextSplitter, PrefixSpace>;

// What a tokenizer is made of, whatever file it was in.
struct TokenizerParts {
  std::vector<std::string> tokens;  // bytes by id; "" where there is none
  std::vector<bool> matchable;      // by id: text can become it by merging
  std::vector<Merge> merges;        // by rank
  std::vector<AddedToken> added;
  std::vector<WordStep> steps;  // each cuts the pieces of the one before
  bool nfc = false;             // Unicode normalisation form C
  bool whole_words = false;     // see BytePairs
  TokenId unknown = kNoToken;
  std::vector<TokenId> before, behind;  // what a text is put between, e.g. a begin token
};

struct EncodeOptions {
  bool add_special = true;  // with what a text is put between
  // Off: the text of a special token in `text` is text. For what a user or a tool has written.
  bool parse_special = true;
};

class Tokenizer {
 public:
  static constexpr std::size_t kMaxVocabulary = 1U << 20;

  // INVALID_ARGUMENT: the parts contradict each other.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> create(TokenizerParts parts);
  // A tokenizer.json, of at most 64 MiB. UNSUPPORTED names the part that is not byte-level BPE;
  // truncation and padding are the caller's.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view json);

  // INVALID_ARGUMENT: not UTF-8, or a pattern took more than its limit of effort. Time and memory
  // (about 100 bytes per byte of the longest word) grow with the text.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    EncodeOptions options = {}) const;
  // The same of a text that a chat template wrote, without what a text is put between: the bytes
  // that `given`, as long as `text`, marks by not 0 came from outside, and a special token is one
  // only where it has none of them. UNSUPPORTED: its special tokens are looked for in normalised
  // text, and normalisation would change the text.
  [[nodiscard]] Result<std::vector<TokenId>> encode_marked(std::string_view text,
                                                           std::string_view given) const;
  // Bytes that are not UTF-8, and ids that are not there, become U+FFFD.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // "" for an id that is not there.
  [[nodiscard]] std::string_view bytes_of(TokenId id) const;
  [[nodiscard]] bool is_special(TokenId id) const;
  // Of an added token.
  [[nodiscard]] std::optional<TokenId> id_of_added(std::string_view text) const;
  [[nodiscard]] std::size_t vocabulary() const { return parts_.tokens.size(); }

 private:
  explicit Tokenizer(TokenizerParts parts, BytePairs pairs, AddedTokens raw, AddedTokens normalized)
      : parts_(std::move(parts)),
        pairs_(std::move(pairs)),
        raw_(std::move(raw)),
        normalized_(std::move(normalized)) {}

  // Words of one encode that were met before.
  using Words = std::unordered_map<std::string, std::vector<TokenId>>;
  [[nodiscard]] Result<std::vector<TokenId>> encode_text(std::string_view text,
                                                         EncodeOptions options,
                                                         std::string_view given) const;
  [[nodiscard]] Status encode_plain(std::string_view text, bool special, std::string_view given,
                                    Words* words, std::vector<TokenId>* ids) const;
  [[nodiscard]] Status encode_words(std::string_view text, Words* words,
                                    std::vector<TokenId>* ids) const;

  TokenizerParts parts_;
  BytePairs pairs_;
  AddedTokens raw_, normalized_;
  std::unordered_map<TokenId, const AddedToken*> added_;  // into raw_ and normalized_
};

// Text of tokens that come one by one: a character appears when its last byte has come. Not thread
// safe.
class TokenStream {
 public:
  explicit TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}
  // What may be shown now. All of it together with finish() is what Tokenizer::decode gives.
  [[nodiscard]] std::string push(TokenId id);
  // What is left: at most one U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string pending_;  // the beginning of a character
};

}  // namespace plexrl::tokenizer
