// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace plexrl::tokenizer {
namespace {

// Words of an encode that are remembered: prose repeats itself, and hostile text must not fill
// memory.
constexpr std::size_t kMaxWords = 16384;
constexpr std::size_t kMaxWordBytes = 64;

// Valid UTF-8 to NFC.
Result<std::string> to_nfc(std::string_view text) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(code);
  std::string normal;
  icu::StringByteSink<std::string> sink(&normal, static_cast<std::int32_t>(text.size()));
  if (U_SUCCESS(code))
    nfc->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())),
                       sink, nullptr, code);
  if (U_FAILURE(code))
    return error(Code::INTERNAL, "tokenizer: normalisation: %s", u_errorName(code));
  return normal;
}

Status check_parts(const TokenizerParts& parts) {
  const std::size_t size = parts.tokens.size();
  const auto inside = [&](TokenId id) { return id >= 0 && static_cast<std::size_t>(id) < size; };
  if (size == 0 || size > Tokenizer::kMaxVocabulary)
    return error(Code::INVALID_ARGUMENT, "tokenizer: a vocabulary of %zu tokens, must be 1 to %zu",
                 size, Tokenizer::kMaxVocabulary);
  if (parts.matchable.size() != size)
    return error(Code::INVALID_ARGUMENT, "tokenizer: %zu marks for %zu tokens",
                 parts.matchable.size(), size);
  for (const Merge& merge : parts.merges)
    if (!inside(merge.left) || !inside(merge.right) || !inside(merge.whole))
      return error(Code::INVALID_ARGUMENT, "tokenizer: a merge of tokens that are not there");
  for (const AddedToken& token : parts.added)
    if (!inside(token.id))
      return error(Code::INVALID_ARGUMENT, "tokenizer: added token %d is not there", token.id);
  for (const auto* const ids : {&parts.before, &parts.behind})
    for (const TokenId id : *ids)
      if (!inside(id))
        return error(Code::INVALID_ARGUMENT, "tokenizer: token %d of the template is not there",
                     id);
  if (parts.unknown != kNoToken && !inside(parts.unknown))
    return error(Code::INVALID_ARGUMENT, "tokenizer: the unknown token is not there");
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(TokenizerParts parts) {
  PLEXRL_TRY(check_parts(parts));
  std::vector<std::string> words(parts.tokens.size());
  for (std::size_t id = 0; id < words.size(); ++id)
    if (parts.matchable[id]) words[id] = parts.tokens[id];
  BytePairs pairs(std::move(words), parts.merges, parts.whole_words, parts.unknown);
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken& token : parts.added) (token.normalized ? normalized : raw).push_back(token);
  // They are looked for in normalised text.
  if (parts.nfc)
    for (AddedToken& token : normalized) {
      PLEXRL_ASSIGN(token.text, to_nfc(token.text));
    }
  PLEXRL_ASSIGN(auto raw_finder, AddedTokens::build(std::move(raw)));
  PLEXRL_ASSIGN(auto normalized_finder, AddedTokens::build(std::move(normalized)));
  parts.merges = {};  // pairs has them
  std::shared_ptr<Tokenizer> made(new Tokenizer(
      std::move(parts), std::move(pairs), std::move(raw_finder), std::move(normalized_finder)));
  for (const AddedTokens* const finder : {&made->raw_, &made->normalized_})
    for (const AddedToken& token : finder->all()) made->added_[token.id] = &token;
  return std::shared_ptr<const Tokenizer>(std::move(made));
}

Status Tokenizer::encode_words(std::string_view text, Words* words,
                               std::vector<TokenId>* ids) const {
  std::vector<std::string_view> pieces = {text};
  std::deque<std::string> prefixed;  // what pieces with a space in front point into
  for (const WordStep& step : parts_.steps) {
    std::vector<std::string_view> next;
    for (const std::string_view piece : pieces) {
      if (const auto* const splitter = std::get_if<TextSplitter>(&step)) {
        PLEXRL_TRY(splitter->split(piece, &next));
      } else if (piece.starts_with(' ')) {
        next.push_back(piece);
      } else {
        next.push_back(prefixed.emplace_back(" " + std::string(piece)));
      }
    }
    pieces = std::move(next);
  }
  for (const std::string_view word : pieces) {
    if (word.size() > kMaxWordBytes) {
      pairs_.encode(word, ids);
      continue;
    }
    auto found = words->find(std::string(word));
    if (found == words->end()) {
      std::vector<TokenId> fresh;
      pairs_.encode(word, &fresh);
      if (words->size() >= kMaxWords) words->clear();
      found = words->emplace(word, std::move(fresh)).first;
    }
    ids->insert(ids->end(), found->second.begin(), found->second.end());
  }
  return {};
}

Status Tokenizer::encode_plain(std::string_view text, bool special, std::string_view given,
                               Words* words, std::vector<TokenId>* ids) const {
  std::string normal;
  if (parts_.nfc) {
    PLEXRL_ASSIGN(normal, to_nfc(text));
    if (normal != text) {
      // The marks are of other bytes now.
      const bool any_given = given.find_first_not_of('\0') != std::string_view::npos;
      const auto is_special = [](const AddedToken& token) { return token.special; };
      if (any_given && std::any_of(normalized_.all().begin(), normalized_.all().end(), is_special))
        return error(Code::UNSUPPORTED,
                     "tokenizer: special tokens of normalised text in text that is not NFC");
      given = {};
    }
    text = normal;
  }
  std::vector<AddedTokens::Piece> pieces;
  normalized_.split(text, special, given, &pieces);
  for (const auto& piece : pieces) {
    if (piece.token != nullptr)
      ids->push_back(piece.token->id);
    else
      PLEXRL_TRY(encode_words(piece.text, words, ids));
  }
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return encode_text(text, options, {});
}

Result<std::vector<TokenId>> Tokenizer::encode_marked(std::string_view text,
                                                      std::string_view given) const {
  PLEXRL_CHECK(text.size() == given.size(), "each byte of a text is marked");
  return encode_text(text, {.add_special = false, .parse_special = true}, given);
}

Result<std::vector<TokenId>> Tokenizer::encode_text(std::string_view text, EncodeOptions options,
                                                    std::string_view given) const {
  constexpr std::size_t kMaxText = 1U << 30;  // ICU counts in 32 bits
  if (text.size() > kMaxText)
    return error(Code::INVALID_ARGUMENT, "tokenizer: a text of %zu bytes, at most %zu", text.size(),
                 kMaxText);
  if (const std::size_t at = find_invalid_utf8(text); at != std::string_view::npos)
    return error(Code::INVALID_ARGUMENT, "tokenizer: the text is not UTF-8 at byte %zu", at);
  std::vector<TokenId> ids;
  if (options.add_special) ids = parts_.before;
  std::vector<AddedTokens::Piece> pieces;
  raw_.split(text, options.parse_special, given, &pieces);
  Words words;
  for (const auto& piece : pieces) {
    if (piece.token != nullptr) {
      ids.push_back(piece.token->id);
      continue;
    }
    const auto at = static_cast<std::size_t>(piece.text.data() - text.data());
    const std::string_view marks = given.empty() ? given : given.substr(at, piece.text.size());
    PLEXRL_TRY(encode_plain(piece.text, options.parse_special, marks, &words, &ids));
  }
  if (options.add_special) ids.insert(ids.end(), parts_.behind.begin(), parts_.behind.end());
  return ids;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= parts_.tokens.size()) return {};
  return parts_.tokens[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_special(TokenId id) const {
  const auto found = added_.find(id);
  return found != added_.end() && found->second->special;
}

std::optional<TokenId> Tokenizer::id_of_added(std::string_view text) const {
  for (const AddedToken& token : parts_.added)
    if (token.text == text) return token.id;
  return std::nullopt;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (skip_special && is_special(id)) continue;
    const std::string_view token = bytes_of(id);
    bytes += token.empty() ? kReplacement : token;
  }
  return replace_invalid_utf8(bytes);
}

std::string TokenStream::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  const std::string_view token = tokenizer_->bytes_of(id);
  pending_ += token.empty() ? kReplacement : token;
  std::size_t whole = 0;
  while (whole < pending_.size()) {
    const Utf8Step step = utf8_step(std::string_view(pending_).substr(whole));
    if (step.kind == Utf8::kCutOff) break;
    whole += step.bytes;
  }
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string TokenStream::finish() { return replace_invalid_utf8(std::exchange(pending_, {})); }

}  // namespace plexrl::tokenizer
