// SPDX-License-Identifier: Apache-2.0
#include "models/tokenizer_description.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/text_file.h"

namespace plexrl::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxTokenizer = 32 << 20;  // half a frame of the client protocol
constexpr std::uint64_t kMaxConfig = 4 << 20;
constexpr std::size_t kMaxTemplate = 1 << 20;
constexpr std::size_t kMaxStops = 64;
constexpr const char* kDefaultTemplate = "default";

// {} where there is no such file.
Result<json> read_object(const std::string& path, std::uint64_t most) {
  const Result<std::string> text = read_text(path, most);
  if (!text.has_value() && text.error().code() == Code::NOT_FOUND) return json::object();
  if (!text.has_value()) return text.error();
  json object = json::parse(*text, nullptr, false);
  if (!object.is_object()) return error(Code::CORRUPT, "'%s': not a JSON object", path.c_str());
  return object;
}

// A token of tokenizer_config.json: its text, or an object with it; "" for none.
std::string token_text(const json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  const bool named = found->is_object() && found->contains("content");
  return named && (*found)["content"].is_string() ? (*found)["content"].get<std::string>() : "";
}

// Ids under "eos_token_id": one or a list.
Result<std::vector<std::int64_t>> end_ids(const json& config, const char* file) {
  const auto found = config.find("eos_token_id");
  std::vector<std::int64_t> ids;
  if (found == config.end() || found->is_null()) return ids;
  const json list = found->is_array() ? *found : json::array({*found});
  for (const json& id : list) {
    if (!id.is_number_integer() || ids.size() == kMaxStops)
      return error(Code::CORRUPT, "%s: eos_token_id is not a token id or at most %zu of them", file,
                   kMaxStops);
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

// The id of an added token, of the vocabulary, or -1.
std::int64_t id_of(const json& tokenizer, const std::string& text) {
  if (const auto added = tokenizer.find("added_tokens");
      added != tokenizer.end() && added->is_array())
    for (const json& token : *added)
      if (token.is_object() && token.value("content", json()) == text && token.contains("id") &&
          token["id"].is_number_integer())
        return token["id"].get<std::int64_t>();
  const json::json_pointer vocabulary("/model/vocab");
  if (!tokenizer.contains(vocabulary) || !tokenizer[vocabulary].is_object()) return -1;
  const auto found = tokenizer[vocabulary].find(text);
  const bool known = found != tokenizer[vocabulary].end() && found->is_number_integer();
  return known ? found->get<std::int64_t>() : -1;
}

// What ends an answer: all that the files name. generation_config.json is what generation uses
// where there is one, and config.json where it says nothing.
Result<std::vector<std::int64_t>> end_tokens(const std::string& dir, const json& tokenizer,
                                             const std::string& eos) {
  PLEXRL_ASSIGN(const json generation, read_object(dir + "/generation_config.json", kMaxConfig));
  PLEXRL_ASSIGN(auto ids, end_ids(generation, "generation_config.json"));
  if (ids.empty()) {
    PLEXRL_ASSIGN(const json config, read_object(dir + "/config.json", kMaxConfig));
    PLEXRL_ASSIGN(ids, end_ids(config, "config.json"));
  }
  const std::int64_t named = eos.empty() ? -1 : id_of(tokenizer, eos);
  // The one of the tokenizer first: it ends what a chat template writes, so answers are taught it.
  if (named >= 0) ids.insert(ids.begin(), named);
  std::vector<std::int64_t> once;
  for (const std::int64_t id : ids)
    if (std::find(once.begin(), once.end(), id) == once.end()) once.push_back(id);
  return once;
}

// A string, or a list of named ones; chat_template.jinja, where newer models have it, counts more.
Result<json> chat_template(const std::string& dir, const json& config) {
  const Result<std::string> file = read_text(dir + "/chat_template.jinja", kMaxTemplate);
  if (file.has_value()) return json(*file);
  if (file.error().code() != Code::NOT_FOUND) return file.error();
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_string()) return found == config.end() ? json() : *found;
  if (found->is_array())
    for (const json& one : *found)
      if (one.is_object() && one.value("name", json()) == kDefaultTemplate &&
          one.contains("template") && one["template"].is_string())
        return one["template"];
  return json();
}

}  // namespace

Result<std::string> describe_tokenizer(const std::string& dir, std::int64_t vocab_size) {
  const std::string path = dir + "/tokenizer.json";
  const Result<std::string> text = read_text(path, kMaxTokenizer);
  if (!text.has_value() && text.error().code() == Code::NOT_FOUND) return std::string();
  if (!text.has_value()) return text.error();
  json tokenizer = json::parse(*text, nullptr, false);
  if (!tokenizer.is_object()) return error(Code::CORRUPT, "'%s': not a JSON object", path.c_str());
  PLEXRL_ASSIGN(const json config, read_object(dir + "/tokenizer_config.json", kMaxConfig));
  json tokens = json::object();
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"})
    if (const std::string token = token_text(config, name); !token.empty()) tokens[name] = token;
  Result<std::vector<std::int64_t>> ends =
      end_tokens(dir, tokenizer, tokens.value("eos_token", std::string()));
  if (!ends.has_value()) return ends.error().within(dir);
  PLEXRL_ASSIGN(const json chat, chat_template(dir, config));
  json description = {{"type", "tokenizer.json"},
                      {"vocab_size", vocab_size},
                      {"eos_token_ids", *ends},
                      {"tokens", tokens}};
  if (chat.is_string()) description["chat_template"] = chat;
  description["tokenizer"] = std::move(tokenizer);
  return description.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace plexrl::model
