// SPDX-License-Identifier: Apache-2.0
#include "http/completion_request.h"

#include <cmath>

#include "http/body_fields.h"
#include "http/chat_input.h"
#include "runtime/op_limits.h"

namespace plexrl::http {
namespace {

using runtime::kMaxRows;

constexpr std::uint32_t kMaxTokens = 1U << 24;  // the model's context is checked with the op

// Numbers that ask for nothing only at one value.
struct NeutralNumber {
  const char* name;
  double neutral, also;
};
constexpr NeutralNumber kNeutral[] = {
    {"presence_penalty", 0, 0},   {"frequency_penalty", 0, 0},
    {"repetition_penalty", 1, 1}, {"min_p", 0, 0},
    {"min_tokens", 0, 0},         {"top_k", -1, 0},
    {"length_penalty", 1, 1},
};
// What asks for nothing when it is empty or false.
constexpr const char* kUnsupported[] = {
    "tools",
    "functions",
    "logit_bias",
    "prompt_logprobs",
    "bad_words",
    "best_of",
    "allowed_token_ids",
    "logprob_token_ids",
    "suffix",
    "use_beam_search",
    "structured_outputs",
    "truncate_prompt_tokens",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "prompt_embeds",
    "documents",
    "audio",
    "continue_final_message",
    "chat_template",
};

bool asks(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return true;
  return !value.empty();
}

void refuse_unsupported(BodyFields& fields) {
  for (const NeutralNumber& row : kNeutral) {
    double value = 0;
    if (fields.is_number(row.name, &value) && value != row.neutral && value != row.also)
      fields.refuse(row.name, error(Code::UNSUPPORTED,
                                    "the engine samples by temperature and top_p only; leave it "
                                    "out or write %g",
                                    row.neutral));
  }
  for (const char* const name : kUnsupported) {
    const Json* const found = fields.find(name);
    if (found != nullptr && asks(*found))
      fields.refuse(name, error(Code::UNSUPPORTED, "not possible with this service; leave it out"));
  }
  const Json* const format = fields.find("response_format");
  if (format != nullptr && !(format->is_object() && format->value("type", Json()) == "text"))
    fields.refuse("response_format", error(Code::UNSUPPORTED, "only text can be had"));
}

// What text() has counted is at most kMaxText in all.
class TextCount {
 public:
  [[nodiscard]] Status add(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ <= kMaxText) return {};
    return error(Code::TOO_LARGE,
                 "more than %zu bytes of text in one request; send token ids or "
                 "several requests",
                 kMaxText);
  }

 private:
  std::size_t bytes_ = 0;
};

Result<PromptInput> one_prompt(const Json& value, TextCount& count) {
  if (value.is_string()) {
    PLEXRL_TRY(count.add(value.get_ref<const std::string&>().size()));
    return PromptInput(value.get<std::string>());
  }
  PLEXRL_ASSIGN(Tokens ids, token_ids(value));
  if (ids.empty()) return error(Code::INVALID_ARGUMENT, "a prompt is empty");
  return PromptInput(std::move(ids));
}

Result<std::vector<PromptInput>> prompts_of(const Json& value) {
  TextCount count;
  std::vector<PromptInput> prompts;
  const bool many =
      value.is_array() && !value.empty() && (value.front().is_string() || value.front().is_array());
  if (!many) {
    PLEXRL_ASSIGN(PromptInput one, one_prompt(value, count));
    prompts.push_back(std::move(one));
    return prompts;
  }
  if (value.size() > kMaxRows)
    return error(Code::TOO_LARGE, "more than %u prompts in one request", kMaxRows);
  for (const Json& each : value) {
    PLEXRL_ASSIGN(PromptInput one, one_prompt(each, count));
    prompts.push_back(std::move(one));
  }
  return prompts;
}

Result<std::vector<std::string>> stops_of(const Json& value) {
  std::vector<std::string> stops;
  const Json list = value.is_string() ? Json::array({value}) : value;
  if (!list.is_array() || list.size() > kMaxStops)
    return error(Code::INVALID_ARGUMENT, "a string or up to %zu of them are needed", kMaxStops);
  for (const Json& each : list) {
    const bool good = each.is_string() && !each.get_ref<const std::string&>().empty() &&
                      each.get_ref<const std::string&>().size() <= kMaxStopBytes;
    if (!good)
      return error(Code::INVALID_ARGUMENT, "a stop string has 1 to %zu bytes", kMaxStopBytes);
    stops.push_back(each.get<std::string>());
  }
  return stops;
}

void read_stream(BodyFields& fields, CompletionRequest& request) {
  fields.read("stream", &request.stream);
  const Json* const options = fields.find("stream_options");
  if (options == nullptr) return;
  const Json usage = options->is_object() ? options->value("include_usage", Json(false)) : Json();
  if (usage.is_boolean()) {
    request.include_usage = usage.get<bool>();
  } else {
    fields.refuse("stream_options", error(Code::INVALID_ARGUMENT,
                                          "an object with include_usage true or false is needed"));
  }
}

void read_sampling(BodyFields& fields, CompletionRequest& request) {
  fields.read("model", &request.model);
  fields.read("n", &request.n, 1, kMaxRows);
  fields.read("temperature", &request.temperature, 0, 100);
  fields.read("top_p", &request.top_p, 1e-6F, 1);
  if (const Json* const seed = fields.find("seed")) {
    if (seed->is_number_integer()) {
      request.seed = static_cast<std::uint64_t>(seed->get<std::int64_t>());
    } else {
      fields.refuse("seed", error(Code::INVALID_ARGUMENT, "a whole number is needed"));
    }
  }
  if (const Json* const stop = fields.find("stop")) {
    auto stops = stops_of(*stop);
    if (stops) request.stop = *std::move(stops);
    if (!stops) fields.refuse("stop", stops.error());
  }
  fields.read("stop_token_ids", &request.stop_token_ids);
  fields.read("include_stop_str_in_output", &request.include_stop);
  fields.read("ignore_eos", &request.ignore_end);
  fields.read("skip_special_tokens", &request.skip_special);
  fields.read("add_special_tokens", &request.add_special);
  fields.read("echo", &request.echo);
  fields.read("return_token_ids", &request.return_token_ids);
  fields.read("return_tokens_as_token_ids", &request.tokens_as_ids);
  read_stream(fields, request);
  refuse_unsupported(fields);
}

void read_max_tokens(BodyFields& fields, const char* name, CompletionRequest& request) {
  if (fields.find(name) == nullptr) return;
  std::uint32_t count = 1;
  fields.read(name, &count, 1, kMaxTokens);
  request.max_tokens = count;
}

// The most likely alternatives are not known; only of greedy sampling is the first.
void check_alternatives(BodyFields& fields, const char* name, std::uint32_t wanted) {
  if (wanted > 0)
    fields.refuse(name, error(Code::UNSUPPORTED,
                              "the engine tells the log-probability of the sampled token, not of "
                              "others; write 0"));
}

// Text parts are joined by line ends; the templates take a string.
Result<std::string> content_text(const Json& content) {
  if (content.is_null()) return std::string();
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  bool first = true;
  if (!content.is_array()) return error(Code::INVALID_ARGUMENT, "'content' is text or parts");
  for (const Json& part : content) {
    const Json piece = part.is_object() ? part.value("text", Json()) : Json();
    if (!piece.is_string() || part.value("type", Json("text")) != "text")
      return error(Code::UNSUPPORTED, "'content': only parts of type text are possible");
    text += (first ? "" : "\n") + piece.get<std::string>();
    first = false;
  }
  return text;
}

Result<Json> messages_of(const Json& value) {
  if (!value.is_array() || value.empty())
    return error(Code::INVALID_ARGUMENT, "a list of at least one message is needed");
  Json messages = value;
  TextCount count;
  for (Json& message : messages) {
    if (!message.is_object() || !message.value("role", Json()).is_string())
      return error(Code::INVALID_ARGUMENT, "a message is an object with 'role' and 'content'");
    PLEXRL_ASSIGN(std::string content, content_text(message.value("content", Json())));
    PLEXRL_TRY(count.add(content.size()));
    message["content"] = std::move(content);
  }
  return messages;
}

std::shared_ptr<const ChatInput> read_chat_input(BodyFields& fields, bool* echo) {
  auto chat = std::make_shared<ChatInput>();
  const Json none = Json::array();
  const Json* const given = fields.find("messages");
  auto messages = messages_of(given == nullptr ? none : *given);
  if (messages) chat->messages = *std::move(messages);
  if (!messages) fields.refuse("messages", messages.error());
  if (const Json* const more = fields.find("chat_template_kwargs")) {
    if (more->is_object()) chat->variables = *more;
    if (!more->is_object())
      fields.refuse("chat_template_kwargs", error(Code::INVALID_ARGUMENT, "an object is needed"));
  }
  if (const Json* const effort = fields.find("reasoning_effort"))
    chat->variables["reasoning_effort"] = *effort;
  fields.read("add_generation_prompt", &chat->add_generation_prompt);
  if (echo != nullptr && *echo)
    fields.refuse("echo", error(Code::UNSUPPORTED, "the messages are not repeated; leave it out"));
  return chat;
}

Status finish(const BodyFields& fields, std::string* field) {
  *field = fields.field();
  return fields.status();
}

}  // namespace

Result<CompletionRequest> parse_completion(std::string_view body, std::string* field) {
  PLEXRL_ASSIGN(const Json json, parse_body(body));
  BodyFields fields(json);
  CompletionRequest request;
  read_sampling(fields, request);
  read_max_tokens(fields, "max_tokens", request);
  if (!request.max_tokens) request.max_tokens = 16;
  if (const Json* const prompt = fields.find("prompt")) {
    auto prompts = prompts_of(*prompt);
    if (prompts) request.prompts = *std::move(prompts);
    if (!prompts) fields.refuse("prompt", prompts.error());
  } else {
    fields.refuse("prompt", error(Code::INVALID_ARGUMENT, "is missing"));
  }
  if (fields.find("logprobs") != nullptr) {
    std::uint32_t alternatives = 0;
    fields.read("logprobs", &alternatives, 0, 100);
    check_alternatives(fields, "logprobs", alternatives);
    request.logprobs = true;
    if (request.echo) fields.refuse("logprobs", error(Code::UNSUPPORTED, "not together with echo"));
  }
  PLEXRL_TRY(finish(fields, field));
  return request;
}

Result<CompletionRequest> parse_chat(std::string_view body, std::string* field) {
  PLEXRL_ASSIGN(const Json json, parse_body(body));
  BodyFields fields(json);
  CompletionRequest request;
  read_sampling(fields, request);
  read_max_tokens(fields, "max_tokens", request);
  read_max_tokens(fields, "max_completion_tokens", request);
  fields.read("logprobs", &request.logprobs);
  std::uint32_t alternatives = 0;
  fields.read("top_logprobs", &alternatives, 0, 100);
  check_alternatives(fields, "top_logprobs", alternatives);
  request.chat = read_chat_input(fields, &request.echo);
  PLEXRL_TRY(finish(fields, field));
  return request;
}

Result<TokenizeRequest> parse_tokenize(std::string_view body, std::string* field) {
  PLEXRL_ASSIGN(const Json json, parse_body(body));
  BodyFields fields(json);
  TokenizeRequest request;
  fields.read("model", &request.model);
  fields.read("add_special_tokens", &request.add_special);
  fields.read("return_token_strs", &request.token_texts);
  if (fields.find("messages") != nullptr) {
    request.chat = read_chat_input(fields, nullptr);
  } else if (fields.find("prompt") != nullptr) {
    fields.read("prompt", &request.prompt);
    TextCount count;
    if (const Status size = count.add(request.prompt.size()); !size.ok())
      fields.refuse("prompt", size);
  } else {
    fields.refuse("prompt", error(Code::INVALID_ARGUMENT, "is missing"));
  }
  PLEXRL_TRY(finish(fields, field));
  return request;
}

Result<DetokenizeRequest> parse_detokenize(std::string_view body, std::string* field) {
  PLEXRL_ASSIGN(const Json json, parse_body(body));
  BodyFields fields(json);
  DetokenizeRequest request;
  fields.read("model", &request.model);
  if (fields.find("tokens") == nullptr)
    fields.refuse("tokens", error(Code::INVALID_ARGUMENT, "is missing"));
  fields.read("tokens", &request.tokens);
  PLEXRL_TRY(finish(fields, field));
  return request;
}

}  // namespace plexrl::http
