// SPDX-License-Identifier: Apache-2.0
// Bodies to requests, and rows to answers.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "../tokenizer/small_tokenizer.h"
#include "http/api_error.h"
#include "http/chat_input.h"
#include "http/completion_reply.h"

namespace plexrl::http {
namespace {

using nlohmann::json;

std::shared_ptr<const TextCodec> chars() {
  return TextCodec::parse(R"({"type":"char","alphabet":"abcdef;é"})").value();
}

// Bytes, <|end|> = 300 and a template that brackets every message by it.
std::shared_ptr<const TextCodec> bytes() {
  json parts = tokenizer::small_tokenizer({});
  tokenizer::add_token(&parts, 300, "<|end|>");
  const json description{
      {"type", "tokenizer.json"},
      {"vocab_size", 301},
      {"tokenizer", parts},
      {"eos_token_ids", {300}},
      {"tokens", {{"eos_token", "<|end|>"}}},
      {"chat_template",
       "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}{{ eos_token }}{% endfor %}"
       "{% if add_generation_prompt %}>{% endif %}{% if mark %}{{ mark }}{% endif %}"}};
  auto codec = TextCodec::parse(description.dump());
  EXPECT_TRUE(codec) << codec.error().to_string();
  return *codec;
}

// The field and the code of a refusal.
std::pair<std::string, Code> refused(const json& body, bool chat = false) {
  std::string field = "none";
  const auto request =
      chat ? parse_chat(body.dump(), &field) : parse_completion(body.dump(), &field);
  return {field, request.error().code()};
}

TEST(CompletionRequest, ReadsWhatIsThereAndKeepsTheDefaults) {
  std::string field;
  const auto plain =
      parse_completion(R"({"model":"m","prompt":"hi","stop":null,"who":[{}]})", &field);
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->model, "m");
  EXPECT_EQ(std::get<std::string>(plain->prompts.at(0)), "hi");
  EXPECT_EQ(plain->max_tokens, 16U);
  EXPECT_EQ(plain->n, 1U);
  EXPECT_FALSE(plain->seed);
  const auto full = parse_completion(
      R"({"prompt":[[1,2],[3]],"max_tokens":5,"n":2,"temperature":0,"top_p":0.5,"seed":-1,
          "stop":["x","yy"],"stop_token_ids":[7],"echo":true,"stream":true,"presence_penalty":0,
          "stream_options":{"include_usage":true},"return_token_ids":true,"ignore_eos":true,
          "top_k":-1,"tools":[],"response_format":{"type":"text"},"logit_bias":{}})",
      &field);
  ASSERT_TRUE(full) << full.error().to_string();
  EXPECT_EQ(std::get<Tokens>(full->prompts.at(0)), (Tokens{1, 2}));
  EXPECT_EQ(full->prompts.size(), 2U);
  EXPECT_EQ(full->max_tokens, 5U);
  EXPECT_EQ(full->temperature, 0.0F);
  EXPECT_EQ(full->seed, UINT64_MAX);
  EXPECT_EQ(full->stop, (std::vector<std::string>{"x", "yy"}));
  EXPECT_TRUE(full->echo && full->stream && full->include_usage && full->ignore_end);
}

TEST(CompletionRequest, AFieldThatIsWrongIsNamed) {
  using Pair = std::pair<std::string, Code>;
  const auto with = [](const char* name, const json& value) {
    json body{{"prompt", "a"}};
    body[name] = value;
    return refused(body);
  };
  const Code wrong = Code::INVALID_ARGUMENT;
  EXPECT_EQ(refused(json::object()), Pair("prompt", wrong));
  EXPECT_EQ(with("prompt", json::array({1, -2})), Pair("prompt", wrong));
  EXPECT_EQ(with("prompt", json::array({json::array()})), Pair("prompt", wrong));
  EXPECT_EQ(with("prompt", json::array({"a", 1})), Pair("prompt", wrong));
  EXPECT_EQ(with("model", 7), Pair("model", wrong));
  EXPECT_EQ(with("max_tokens", 0), Pair("max_tokens", wrong));
  EXPECT_EQ(with("max_tokens", 1.5), Pair("max_tokens", wrong));
  EXPECT_EQ(with("n", "two"), Pair("n", wrong));
  EXPECT_EQ(with("temperature", -1), Pair("temperature", wrong));
  EXPECT_EQ(with("top_p", 0), Pair("top_p", wrong));
  EXPECT_EQ(with("seed", "x"), Pair("seed", wrong));
  EXPECT_EQ(with("stop", json::array({""})), Pair("stop", wrong));
  EXPECT_EQ(with("stop", std::string(257, 'x')), Pair("stop", wrong));
  EXPECT_EQ(with("stop_token_ids", json::array({"x"})), Pair("stop_token_ids", wrong));
  EXPECT_EQ(with("stream", 1), Pair("stream", wrong));
  EXPECT_EQ(with("stream_options", 1), Pair("stream_options", wrong));
  EXPECT_EQ(with("prompt", std::string(kMaxText + 1, 'x')), Pair("prompt", Code::TOO_LARGE));
  const json messages = json::array({{{"role", "user"}, {"content", 5}}});
  EXPECT_EQ(refused({{"messages", messages}}, true), Pair("messages", wrong));
  EXPECT_EQ(refused(json::object(), true), Pair("messages", wrong));
}

TEST(CompletionRequest, WhatTheEngineCannotDoIsRefused) {
  const Code no = Code::UNSUPPORTED;
  const std::pair<const char*, json> rows[] = {{"logprobs", 5},
                                               {"presence_penalty", 0.5},
                                               {"top_k", 20},
                                               {"best_of", 2},
                                               {"logit_bias", {{"1", 2}}},
                                               {"response_format", {{"type", "json_object"}}},
                                               {"prompt_logprobs", 0},
                                               {"tools", json::array({json::object()})}};
  for (const auto& [name, value] : rows) {
    json body{{"prompt", "a"}};
    body[name] = value;
    EXPECT_EQ(refused(body), (std::pair<std::string, Code>(name, no)));
  }
  const json image = json::array({{{"type", "image_url"}, {"image_url", "x"}}});
  const json messages = json::array({{{"role", "user"}, {"content", image}}});
  EXPECT_EQ(refused({{"messages", messages}}, true).second, no);
}

TEST(CompletionRequest, ABodyThatIsNoObjectIsRefused) {
  std::string field;
  for (const char* body :
       {"", "{", "[]", "\"x\"", "{\"a\":1e999}", "{\"prompt\":\"\xff\"}", "{}{}"})
    EXPECT_FALSE(parse_completion(body, &field)) << body;
  EXPECT_EQ(parse_completion(std::string(100000, '['), &field).error().code(), Code::TOO_LARGE);
  std::string keys = "{\"prompt\":\"a\"";
  for (int i = 0; i < 300; ++i) keys += ",\"k" + std::to_string(i) + "\":1";
  EXPECT_EQ(parse_completion(keys + "}", &field).error().code(), Code::TOO_LARGE);
  // Brackets and colons in strings do not count.
  const std::string text =
      R"({"prompt":")" + std::string(1000, '[') + std::string(1000, ':') + R"(\""})";
  EXPECT_TRUE(parse_completion(text, &field));
}

AnswerRow row(const CompletionRequest& request, const TextCodec& codec, const Tokens& tokens,
              bool stopped = false) {
  RawRow raw{tokens, std::vector<float>(tokens.size(), -0.5F), stopped};
  return answer_row(request, codec, std::move(raw));
}

TEST(AnswerRow, TheStringThatIsCompleteFirstEndsIt) {
  const auto codec = chars();
  CompletionRequest request;
  request.stop = {"ef", "cd"};
  const AnswerRow cut = row(request, *codec, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(cut.text, "ab");
  EXPECT_EQ(cut.tokens, (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(cut.logprobs.size(), 4U);
  EXPECT_TRUE(cut.stopped);
  EXPECT_EQ(std::get<std::string>(cut.stop_reason), "cd");
  request.include_stop = true;
  EXPECT_EQ(row(request, *codec, {0, 1, 2, 3, 4}).text, "abcd");
  const AnswerRow whole = row(request, *codec, {0, 1});
  EXPECT_EQ(whole.text, "ab");
  EXPECT_FALSE(whole.stopped);
}

TEST(AnswerRow, TheTokenThatEndedItIsNoText) {
  const auto codec = chars();
  CompletionRequest request;
  const AnswerRow ended = row(request, *codec, {0, 6}, true);
  EXPECT_EQ(ended.text, "a");
  EXPECT_EQ(ended.tokens, (Tokens{0, 6}));
  EXPECT_EQ(std::get<std::int32_t>(ended.stop_reason), 6);
  request.include_stop = true;
  EXPECT_EQ(row(request, *codec, {0, 6}, true).text, "a;");
  // The model's own end is no reason to tell.
  const AnswerRow own = row(request, *bytes(), {'h', 'i', 300}, true);
  EXPECT_EQ(own.text, "hi");
  EXPECT_TRUE(own.stopped);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(own.stop_reason));
}

TEST(AnswerRow, BytesThatAreNoCharacterAreReplaced) {
  const AnswerRow half = row({}, *bytes(), {'a', 0xC3, 999});
  EXPECT_EQ(half.text, "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(CompletionReply, HasTheFieldsOfOpenAi) {
  const auto codec = chars();
  CompletionRequest request;
  request.n = 2;
  request.logprobs = request.return_token_ids = request.echo = true;
  Completion completion{"1", 5, "m", {{0, 1}}, {}};
  completion.rows = {row(request, *codec, {2, 7}), row(request, *codec, {6}, true)};
  completion.rows[0].logprobs[1] = -INFINITY;
  const json reply = json::parse(completion_json(request, *codec, completion));
  EXPECT_EQ(reply["id"], "cmpl-1");
  EXPECT_EQ(reply["object"], "text_completion");
  const json& first = reply["choices"][0];
  EXPECT_EQ(first["text"], "abcé");
  EXPECT_EQ(first["finish_reason"], "length");
  EXPECT_EQ(first["token_ids"], json({2, 7}));
  EXPECT_EQ(first["prompt_token_ids"], json({0, 1}));
  EXPECT_EQ(first["logprobs"]["tokens"], json({"c", "é"}));
  EXPECT_EQ(first["logprobs"]["token_logprobs"], json({-0.5, -9999.0}));
  EXPECT_EQ(first["logprobs"]["text_offset"], json({0, 1}));
  EXPECT_EQ(reply["choices"][1]["index"], 1);
  EXPECT_EQ(reply["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(reply["choices"][1]["stop_reason"], 6);
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(reply["usage"]["completion_tokens"], 3);
  EXPECT_EQ(reply["usage"]["total_tokens"], 5);
}

TEST(CompletionReply, AChatIsRenderedByTheTemplate) {
  const auto codec = bytes();
  std::string field;
  const json body{{"messages",
                   {{{"role", "user"}, {"content", "x<|end|>"}},
                    {{"role", "assistant"}, {"content", {{{"type", "text"}, {"text", "y"}}}}}}},
                  {"chat_template_kwargs", {{"mark", "!"}}}};
  auto request = parse_chat(body.dump(), &field);
  ASSERT_TRUE(request) << request.error().to_string();
  const auto tokens = codec->encode_chat(*request->chat);
  ASSERT_TRUE(tokens) << tokens.error().to_string();
  // What a message spells is text; the template's own is the token.
  EXPECT_EQ(std::count(tokens->begin(), tokens->end(), 300), 2);
  EXPECT_EQ(codec->decode(*tokens, true), "user:x<|end|>assistant:y>!");
  request->logprobs = true;
  Completion completion{"1", 5, "m", {*tokens}, {row(*request, *codec, {'o', 'k', 300}, true)}};
  const json reply = json::parse(completion_json(*request, *codec, completion));
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(reply["choices"][0]["message"], json({{"role", "assistant"}, {"content", "ok"}}));
  const json& logprobs = reply["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(logprobs.size(), 3U);
  EXPECT_EQ(logprobs[0]["token"], "o");
  EXPECT_EQ(logprobs[0]["bytes"], json({'o'}));
}

TEST(CompletionReply, EventsEndWithUsageAndDone) {
  const auto codec = chars();
  CompletionRequest request;
  request.n = 2;
  request.stream = request.include_usage = true;
  Completion completion{"1", 5, "m", {{0}}, {row(request, *codec, {1}), row(request, *codec, {2})}};
  const std::string events = completion_events(request, *codec, completion);
  std::vector<std::string> data;
  for (std::size_t at = 0; at < events.size();) {
    const std::size_t end = events.find("\n\n", at);
    ASSERT_NE(end, std::string::npos);
    ASSERT_EQ(events.substr(at, 6), "data: ");
    data.push_back(events.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  ASSERT_EQ(data.size(), 4U);
  EXPECT_EQ(json::parse(data[1])["choices"][0]["text"], "c");
  EXPECT_EQ(json::parse(data[1])["choices"][0]["index"], 1);
  EXPECT_EQ(json::parse(data[2])["choices"], json::array());
  EXPECT_EQ(json::parse(data[2])["usage"]["completion_tokens"], 2);
  EXPECT_EQ(data[3], "[DONE]");
}

TEST(TextCodec, ADescriptionThatIsNotUnderstoodIsRefused) {
  for (const char* text :
       {"", "{}", "[]", R"({"type":"other"})", R"({"type":"char"})", R"({"type":"tokenizer.json"})",
        R"({"type":"tokenizer.json","tokenizer":5})"})
    EXPECT_FALSE(TextCodec::parse(text)) << text;
  EXPECT_EQ(chars()->encode("ax", true).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(chars()->encode("a\xC3", true).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(chars()->encode_chat({}).error().code(), Code::UNSUPPORTED);
}

TEST(ApiError, IsJsonWhateverTheText) {
  const Response response =
      error_response(error(Code::BUSY, "a \"quote\"\n\\ \x01 \xff \xC3\xA9"), 1500, "max_tokens");
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.retry_after_ms, 1500U);
  const json body = json::parse(response.body);
  EXPECT_EQ(body["error"]["message"], "a \"quote\"\n\\ \x01 \xEF\xBF\xBD \xC3\xA9");
  EXPECT_EQ(body["error"]["type"], "RateLimitError");
  EXPECT_EQ(body["error"]["param"], "max_tokens");
  EXPECT_EQ(body["error"]["code"], "BUSY");
  EXPECT_EQ(json::parse(error_response(error(Code::AUTH, "x")).body)["error"]["param"], nullptr);
}

}  // namespace
}  // namespace plexrl::http
