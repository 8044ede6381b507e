// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace plexrl::model {
namespace {

using nlohmann::json;

// tokenizer.ggml.token_type, of ggml's llama.h.
constexpr std::int64_t kControl = 3, kUserDefined = 4;

constexpr const char* kWordsOfDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// How a tokenizer cuts text into words, by tokenizer.ggml.pre.
struct WordsRow {
  std::string_view name;
  const char* digits;  // nullptr: the words of GPT-2
  bool digits_apart;   // before those
  bool nfc;
  bool whole_words;
};
constexpr std::array<WordsRow, 8> kWords = {{{"gpt-2", nullptr, false, false, false},
                                             {"default", nullptr, false, false, false},
                                             {"smollm", nullptr, true, false, false},
                                             {"smaug-bpe", R"(\p{N}{1,3})", false, false, false},
                                             {"llama-bpe", R"(\p{N}{1,3})", false, false, true},
                                             {"llama3", R"(\p{N}{1,3})", false, false, true},
                                             {"qwen2", R"(\p{N})", false, true, false},
                                             {"qwen35", R"(\p{N})", false, true, false}}};

Result<WordsRow> words_of(const std::string& name) {
  for (const WordsRow& row : kWords)
    if (row.name == name) return row;
  return error(Code::UNSUPPORTED, "gguf: tokenizer.ggml.pre is '%s', which is not known",
               name.substr(0, 64).c_str());
}

json byte_level(bool with_words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", with_words}};
}

json pre_tokenizer(const WordsRow& words) {
  json steps = json::array();
  if (words.digits_apart) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (words.digits != nullptr) {
    std::string pattern = kWordsOfDigits;
    pattern.replace(pattern.find('%'), 1, words.digits);
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(byte_level(words.digits == nullptr));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Result<json> model_of(const GgufFile& file, const std::vector<std::string>& tokens,
                      const WordsRow& words) {
  PLEXRL_ASSIGN(const auto merges, file.texts("tokenizer.ggml.merges"));
  json vocabulary = json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (!vocabulary.emplace(tokens[id], id).second)
      return error(Code::INVALID_ARGUMENT, "gguf: token %zu occurs twice", id);
  return json{{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"byte_fallback", false},
              {"ignore_merges", words.whole_words},
              {"vocab", vocabulary},
              {"merges", merges}};
}

Result<json> added_of(const GgufFile& file, const std::vector<std::string>& tokens) {
  json added = json::array();
  PLEXRL_ASSIGN(const auto types, file.integers("tokenizer.ggml.token_type"));
  if (types.size() != tokens.size())
    return error(Code::INVALID_ARGUMENT, "gguf: %zu token types for %zu tokens", types.size(),
                 tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (types[id] == kControl || types[id] == kUserDefined)
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[id] == kControl}});
  return added;
}

// "" when the file names none.
Result<std::string> named_token(const GgufFile& file, const char* which,
                                const std::vector<std::string>& tokens) {
  const std::string key = std::string("tokenizer.ggml.") + which + "_token_id";
  if (!file.has(key)) return std::string();
  PLEXRL_ASSIGN(const std::int64_t id, file.integer(key));
  if (id < 0 || static_cast<std::size_t>(id) >= tokens.size())
    return error(Code::INVALID_ARGUMENT, "gguf: %s names a token that is not there", key.c_str());
  return tokens[static_cast<std::size_t>(id)];
}

bool flag(const GgufFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  const bool* const value =
      found == file.metadata().end() ? nullptr : std::get_if<bool>(&found->second);
  return value != nullptr && *value;
}

Result<json> config_of(const GgufFile& file, const std::vector<std::string>& tokens) {
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false},
                 {"add_bos_token", flag(file, "tokenizer.ggml.add_bos_token")}};
  for (const auto& [which, key] : {std::pair("bos", "bos_token"),
                                   {"eos", "eos_token"},
                                   {"unknown", "unk_token"},
                                   {"padding", "pad_token"}}) {
    PLEXRL_ASSIGN(const std::string token, named_token(file, which, tokens));
    if (!token.empty()) config[key] = token;
  }
  if (file.has("tokenizer.chat_template")) {
    PLEXRL_ASSIGN(config["chat_template"], file.text("tokenizer.chat_template"));
  }
  return config;
}

// A begin token in front of every text, where the file wants it.
json post_processor(const json& config, const std::vector<std::string>& tokens) {
  if (!config["add_bos_token"].get<bool>() || !config.contains("bos_token")) return nullptr;
  const auto bos = config["bos_token"].get<std::string>();
  const auto id = std::find(tokens.begin(), tokens.end(), bos) - tokens.begin();
  return {{"type", "TemplateProcessing"},
          {"single",
           {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
          {"pair",
           {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", {id}}, {"tokens", {bos}}}}}}};
}

}  // namespace

Result<TokenizerFiles> tokenizer_of(const GgufFile& file) {
  PLEXRL_ASSIGN(const auto kind, file.text("tokenizer.ggml.model"));
  if (kind != "gpt2")
    return error(Code::UNSUPPORTED,
                 "gguf: a tokenizer of kind '%s'; only byte-level BPE ('gpt2') is read",
                 kind.substr(0, 64).c_str());
  std::string pre = "default";
  if (file.has("tokenizer.ggml.pre")) {
    PLEXRL_ASSIGN(pre, file.text("tokenizer.ggml.pre"));
  }
  PLEXRL_ASSIGN(const WordsRow words, words_of(pre));
  PLEXRL_ASSIGN(const auto tokens, file.texts("tokenizer.ggml.tokens"));
  TokenizerFiles files;
  files.vocabulary = tokens.size();
  PLEXRL_ASSIGN(files.config, config_of(file, tokens));
  json& made = files.tokenizer;
  made = {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"normalizer", words.nfc ? json{{"type", "NFC"}} : json()},
          {"pre_tokenizer", pre_tokenizer(words)},
          {"post_processor", post_processor(files.config, tokens)},
          {"decoder", byte_level(true)}};
  PLEXRL_ASSIGN(made["added_tokens"], added_of(file, tokens));
  PLEXRL_ASSIGN(made["model"], model_of(file, tokens, words));
  // What we write, we can read.
  const std::string text = made.dump(-1, ' ', false, json::error_handler_t::replace);
  PLEXRL_TRY(tokenizer::Tokenizer::from_json(text).status().within("gguf"));
  return files;
}

}  // namespace plexrl::model
