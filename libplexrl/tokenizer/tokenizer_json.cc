// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of the Hugging Face `tokenizers` library (0.13 to 0.22): what of it is byte-level
// BPE.
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace plexrl::tokenizer {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFile = 64U << 20;
constexpr std::size_t kMaxMerges = 4U << 20;
constexpr std::size_t kMaxAdded = 1U << 16;
constexpr std::size_t kMaxSteps = 16;
// Of the ByteLevel pre-tokenizer: the words of GPT-2 (Radford et al., 2019).
constexpr const char* kWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Status wrong(const char* what) { return error(Code::INVALID_ARGUMENT, "tokenizer.json: %s", what); }

Status unsupported(const char* part, const std::string& type) {
  return error(Code::UNSUPPORTED, "tokenizer.json: %s '%s' is not one of byte-level BPE", part,
               type.substr(0, 64).c_str());
}

// Missing and null are the same in these files.
const json* member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const json& object, const char* key) {
  const json* const value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

bool flag(const json& object, const char* key, bool otherwise = false) {
  const json* const value = member(object, key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
}

Result<TokenId> id_from(const json& value) {
  if (!value.is_number_integer()) return wrong("an id is not an integer");
  const auto id = value.get<std::int64_t>();
  if (id < 0 || id >= static_cast<std::int64_t>(Tokenizer::kMaxVocabulary))
    return error(Code::INVALID_ARGUMENT, "tokenizer.json: id %lld is not in 0 to %zu",
                 static_cast<long long>(id), Tokenizer::kMaxVocabulary - 1);
  return static_cast<TokenId>(id);
}

class Reader {
 public:
  explicit Reader(const json& document) : document_(document) {}
  Result<TokenizerParts> read();

 private:
  Status read_model(const json& model);
  Status read_vocabulary(const json& vocabulary);
  Status read_merges(const json& merges);
  Status read_added(const json& added);
  Status read_normalizer(const json& normalizer);
  Status read_pre_tokenizer(const json& step);
  Status read_split(const json& step);
  Status read_post_processor(const json& step);
  Status read_decoder(const json& step);
  Status add_step(std::string_view pattern);
  void place(TokenId id, std::string bytes, bool matchable);
  [[nodiscard]] TokenId find(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? kNoToken : found->second;
  }

  const json& document_;
  TokenizerParts parts_;
  std::unordered_map<std::string, TokenId> ids_;  // as the file writes them
  bool byte_level_ = false;
};

void Reader::place(TokenId id, std::string bytes, bool matchable) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= parts_.tokens.size()) {
    parts_.tokens.resize(at + 1);
    parts_.matchable.resize(at + 1);
  }
  parts_.tokens[at] = std::move(bytes);
  parts_.matchable[at] = matchable;
}

Status Reader::read_vocabulary(const json& vocabulary) {
  if (!vocabulary.is_object()) return wrong("model.vocab is not an object");
  for (const auto& [token, value] : vocabulary.items()) {
    PLEXRL_ASSIGN(const TokenId id, id_from(value));
    if (static_cast<std::size_t>(id) < parts_.tokens.size() &&
        !parts_.tokens[static_cast<std::size_t>(id)].empty())
      return error(Code::INVALID_ARGUMENT, "tokenizer.json: two tokens have id %d", id);
    ids_.emplace(token, id);
    std::string bytes;
    const bool byte_level = from_byte_alphabet(token, &bytes);
    place(id, byte_level ? bytes : token, byte_level);
  }
  return {};
}

Status Reader::read_merges(const json& merges) {
  if (!merges.is_array() || merges.size() > kMaxMerges)
    return wrong("model.merges is not a list of at most 4 million");
  for (const json& merge : merges) {
    std::string left;
    std::string right;
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) return wrong("a merge is not two tokens");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      return wrong("a merge is not two tokens");
    }
    const Merge made{find(left), find(right), find(left + right)};
    if (made.left == kNoToken || made.right == kNoToken || made.whole == kNoToken)
      return error(Code::INVALID_ARGUMENT,
                   "tokenizer.json: merge %zu is of tokens that are not in the vocabulary",
                   parts_.merges.size());
    parts_.merges.push_back(made);
  }
  return {};
}

Status Reader::read_model(const json& model) {
  // Files of before 2020 have no type here.
  if (const std::string type = text_of(model, "type"); !type.empty() && type != "BPE")
    return unsupported("model", type);
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!text_of(model, key).empty()) return unsupported(key, text_of(model, key));
  if (flag(model, "byte_fallback")) return unsupported("model with", "byte_fallback");
  if (const json* const dropout = member(model, "dropout"); dropout != nullptr && *dropout != 0)
    return unsupported("model with", "dropout");
  parts_.whole_words = flag(model, "ignore_merges");
  const json* const vocabulary = member(model, "vocab");
  const json* const merges = member(model, "merges");
  if (vocabulary == nullptr || merges == nullptr) return wrong("model.vocab or merges is missing");
  PLEXRL_TRY(read_vocabulary(*vocabulary));
  PLEXRL_TRY(read_merges(*merges));
  const std::string unknown = text_of(model, "unk_token");
  if (unknown.empty()) return {};
  if (flag(model, "fuse_unk")) return unsupported("model with", "fuse_unk");
  parts_.unknown = find(unknown);
  return parts_.unknown == kNoToken ? wrong("unk_token is not in the vocabulary") : Status();
}

Status Reader::read_added(const json& added) {
  if (!added.is_array() || added.size() > kMaxAdded)
    return wrong("added_tokens is not a list of at most 65536");
  for (const json& entry : added) {
    if (!entry.is_object() || member(entry, "id") == nullptr)
      return wrong("an added token has no id");
    AddedToken token;
    PLEXRL_ASSIGN(token.id, id_from(entry["id"]));
    token.text = text_of(entry, "content");
    token.special = flag(entry, "special");
    token.single_word = flag(entry, "single_word");
    token.lstrip = flag(entry, "lstrip");
    token.rstrip = flag(entry, "rstrip");
    token.normalized = flag(entry, "normalized");
    const auto at = static_cast<std::size_t>(token.id);
    const bool merged = at < parts_.tokens.size() && parts_.matchable[at];
    place(token.id, token.text, merged);
    parts_.added.push_back(std::move(token));
  }
  return {};
}

Status Reader::read_normalizer(const json& normalizer) {
  const std::string type = text_of(normalizer, "type");
  if (type == "NFC") {
    parts_.nfc = true;
    return {};
  }
  const json* const steps = member(normalizer, "normalizers");
  if (type != "Sequence" || steps == nullptr || !steps->is_array())
    return unsupported("normalizer", type);
  for (const json& step : *steps) {
    if (text_of(step, "type") != "NFC") return unsupported("normalizer", text_of(step, "type"));
    parts_.nfc = true;
  }
  return {};
}

Status Reader::add_step(std::string_view pattern) {
  if (parts_.steps.size() >= kMaxSteps) return wrong("too many pre-tokenizers");
  PLEXRL_ASSIGN(auto splitter, TextSplitter::compile(pattern));
  parts_.steps.emplace_back(std::move(splitter));
  return {};
}

Status Reader::read_split(const json& step) {
  if (text_of(step, "behavior") != "Isolated")
    return unsupported("split with behavior", text_of(step, "behavior"));
  const json* const pattern = member(step, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return wrong("a split has no pattern");
  if (const std::string regex = text_of(*pattern, "Regex"); !regex.empty()) return add_step(regex);
  const std::string literal = text_of(*pattern, "String");
  if (literal.empty() || literal.find("\\E") != std::string::npos)
    return unsupported("split at string", literal);
  return add_step("\\Q" + literal + "\\E");
}

Status Reader::read_pre_tokenizer(const json& step) {
  const std::string type = text_of(step, "type");
  if (byte_level_) return unsupported("pre-tokenizer behind ByteLevel", type);
  if (type == "Sequence") {
    const json* const steps = member(step, "pretokenizers");
    if (steps == nullptr || !steps->is_array() || steps->size() > kMaxSteps)
      return wrong("pre_tokenizer is not a list of at most 16");
    for (const json& one : *steps) {
      if (text_of(one, "type") == "Sequence") return unsupported("nested pre-tokenizer", type);
      PLEXRL_TRY(read_pre_tokenizer(one));
    }
    return {};
  }
  if (type == "Split") return read_split(step);
  if (type == "Digits") return add_step(flag(step, "individual_digits") ? "\\p{N}" : "\\p{N}+");
  if (type != "ByteLevel") return unsupported("pre-tokenizer", type);
  byte_level_ = true;
  if (flag(step, "add_prefix_space", true)) parts_.steps.emplace_back(PrefixSpace());
  return flag(step, "use_regex", true) ? add_step(kWords) : Status();
}

Status Reader::read_post_processor(const json& step) {
  const std::string type = text_of(step, "type");
  if (type == "ByteLevel") return {};
  if (type == "Sequence") {
    const json* const steps = member(step, "processors");
    if (steps == nullptr || !steps->is_array() || steps->size() > kMaxSteps)
      return wrong("post_processor is not a list of at most 16");
    for (const json& one : *steps) {
      if (text_of(one, "type") == "Sequence") return unsupported("nested post-processor", type);
      PLEXRL_TRY(read_post_processor(one));
    }
    return {};
  }
  const json* const single = member(step, "single");
  const json* const specials = member(step, "special_tokens");
  if (type != "TemplateProcessing" || single == nullptr || !single->is_array() ||
      single->size() > kMaxSteps)
    return unsupported("post-processor", type);
  bool text_seen = false;
  for (const json& item : *single) {
    if (!item.is_object()) return wrong("an item of the template is not an object");
    if (item.contains("Sequence")) {
      text_seen = true;
      continue;
    }
    const json* const special = member(item, "SpecialToken");
    const std::string name = special == nullptr ? "" : text_of(*special, "id");
    const json* const entry =
        specials != nullptr && specials->is_object() ? member(*specials, name.c_str()) : nullptr;
    const json* const ids = entry == nullptr ? nullptr : member(*entry, "ids");
    if (ids == nullptr || !ids->is_array() || ids->size() > kMaxSteps)
      return wrong("a special token of the template has no ids");
    for (const json& value : *ids) {
      PLEXRL_ASSIGN(const TokenId id, id_from(value));
      (text_seen ? parts_.behind : parts_.before).push_back(id);
    }
  }
  return {};
}

Status Reader::read_decoder(const json& step) {
  const std::string type = text_of(step, "type");
  return type == "ByteLevel" ? Status() : unsupported("decoder", type);
}

Result<TokenizerParts> Reader::read() {
  if (!document_.is_object()) return wrong("it is not JSON, or not an object");
  const json* const model = member(document_, "model");
  if (model == nullptr || !model->is_object()) return wrong("'model' is missing");
  PLEXRL_TRY(read_model(*model));
  struct Part {
    const char* key;
    Status (Reader::*read)(const json&);
  };
  for (const auto& [key, read] :
       {Part{"added_tokens", &Reader::read_added}, Part{"normalizer", &Reader::read_normalizer},
        Part{"pre_tokenizer", &Reader::read_pre_tokenizer},
        Part{"post_processor", &Reader::read_post_processor},
        Part{"decoder", &Reader::read_decoder}})
    if (const json* const value = member(document_, key); value != nullptr)
      PLEXRL_TRY((this->*read)(*value));
  if (!byte_level_) return unsupported("pre-tokenizer", "none");
  return std::move(parts_);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view text) {
  if (text.size() > kMaxFile)
    return error(Code::INVALID_ARGUMENT, "tokenizer.json: %zu bytes, at most %zu", text.size(),
                 kMaxFile);
  const json document = json::parse(text, nullptr, false);
  PLEXRL_ASSIGN(auto parts, Reader(document).read());
  return create(std::move(parts));
}

}  // namespace plexrl::tokenizer
