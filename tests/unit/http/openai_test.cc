// SPDX-License-Identifier: Apache-2.0
// The OpenAI API by raw HTTP, on fake engines.
#include <gtest/gtest.h>

#include "web_node.h"

namespace plexrl::http {
namespace {

using client::RpcClient;
using nlohmann::json;

class OpenAiTest : public WebNodeTest {
 protected:
  OpenAiTest() { site_.daemon.max_queued_ops_per_tenant = 4; }
  void SetUp() override {
    WebNodeTest::SetUp();
    bearer_ = "Authorization: Bearer " + token_ + "\r\n";
  }

  // A LoRA model of the job with one published version, whose number is given back.
  std::uint64_t publish(const std::string& token, const std::string& name) {
    auto client = connect(token);
    wire::CreateModelT create;
    create.name = name;
    create.mode = wire::TrainMode::Lora;
    const auto model = client->call<wire::ModelInfoT>(create, soon());
    EXPECT_TRUE(model) << model.error().to_string();
    wire::SubmitOpT submit;
    submit.model = model->model;
    submit.seq = 1;
    submit.args.Set(wire::SaveArgsT());
    const auto saved = client->call<wire::OpReplyT>(submit, soon());
    EXPECT_TRUE(saved) << saved.error().to_string();
    return saved ? saved->value.AsSaveResult()->version : 0;
  }

  std::optional<HttpReply> post(const std::string& path, const json& body) {
    return web().post(path, body.dump(), bearer_);
  }
  // The body of the answer, which has this status.
  json answer(int status, const std::string& path, const json& body) {
    const auto reply = post(path, body);
    EXPECT_TRUE(reply);
    EXPECT_EQ(reply ? reply->status : 0, status) << (reply ? reply->body : "");
    return reply ? json::parse(reply->body) : json();
  }

  std::string bearer_;
};

TEST_F(OpenAiTest, HealthAndMetricsNeedNoToken) {
  HttpClient client = web();
  EXPECT_EQ(client.get("/health")->status, 200);
  EXPECT_EQ(client.get("/healthz")->status, 200);
  const auto metrics = client.get("/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_NE(metrics->body.find("\nplexrl_ops_outstanding 0\n"), std::string::npos);
  EXPECT_NE(metrics->body.find("\nplexrl_http_answers_total{status=\"200\"} 2\n"),
            std::string::npos);
  EXPECT_EQ(metrics->headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
}

TEST_F(OpenAiTest, OnlyTheJobsOwnUserWithItsTokenIsLetIn) {
  HttpClient client = web();
  const auto status = [&](const std::string& headers) {
    const auto reply = client.get("/v1/models", headers);
    if (reply && reply->status != 200) {
      EXPECT_EQ(json::parse(reply->body)["error"]["type"], "AuthenticationError");
    }
    return reply ? reply->status : 0;
  };
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("X-API-Key: nonsense\r\n"), 401);
  EXPECT_EQ(status("Authorization: Basic " + token_ + "\r\n"), 401);
  EXPECT_EQ(status("X-API-Key: " + open_job(12, 54321) + "\r\n"), 401);
  EXPECT_EQ(status(bearer_), 200);
  EXPECT_EQ(status("X-API-Key: " + token_ + "\r\n"), 200);
  EXPECT_EQ(status("X-API-Key: tml-" + token_ + "\r\n"), 200);
  wire::CloseJobT close;
  close.job_id = 11;
  ASSERT_TRUE(connect()->call<wire::DoneT>(close, soon()));
  HttpClient later = web();
  EXPECT_EQ(later.get("/v1/models", bearer_)->status, 401);
}

TEST_F(OpenAiTest, PathsThatAreNotThereAreCounted) {
  HttpClient client = web();
  for (const char* path : {"/", "/v1", "/v1/models/", "/v1/completions/", "/../v1/models",
                           "/v1/%6dodels", "//v1/models", "/HEALTH"})
    EXPECT_EQ(client.get(path, bearer_)->status, 404) << path;
  const auto method = client.get("/v1/completions", bearer_);
  EXPECT_EQ(method->status, 405);
  EXPECT_EQ(method->headers.at("allow"), "POST");
  const auto metrics = client.get("/metrics")->body;
  EXPECT_NE(metrics.find("\nplexrl_http_unknown_routes_total 8\n"), std::string::npos);
}

TEST_F(OpenAiTest, TheModelsOfTheJobAreListed) {
  const std::uint64_t version = publish(token_, "policy");
  (void)publish(open_job(12), "secret");
  HttpClient client = web();
  const json list = json::parse(client.get("/v1/models", bearer_)->body);
  ASSERT_EQ(list["data"].size(), 3U);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["parent"], nullptr);
  EXPECT_EQ(list["data"][0]["max_model_len"], 64);
  EXPECT_EQ(list["data"][1]["id"], "policy");
  EXPECT_EQ(list["data"][1]["parent"], "tiny");
  EXPECT_EQ(list["data"][2]["id"], "policy@" + std::to_string(version));
  EXPECT_EQ(json::parse(client.get("/v1/models/tin%79", bearer_)->body)["id"], "tiny");
  EXPECT_EQ(client.get("/v1/models/secret", bearer_)->status, 404);
  EXPECT_EQ(client.get("/v1/models/tin%", bearer_)->status, 404);
}

TEST_F(OpenAiTest, TextAndTokensAreCompleted) {
  const json body{{"model", "tiny"}, {"prompt", "12+34="}, {"max_tokens", 3}, {"seed", 5}};
  const json text = answer(200, "/v1/completions", body);
  EXPECT_EQ(text["object"], "text_completion");
  EXPECT_EQ(text["model"], "tiny");
  EXPECT_EQ(text["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(text["usage"]["completion_tokens"], 3);
  json ids = body;
  ids["prompt"] = {{1, 2, 10}, {3}};
  ids["n"] = 2;
  ids["logprobs"] = 0;
  ids["return_token_ids"] = true;
  const json tokens = answer(200, "/v1/completions", ids);
  ASSERT_EQ(tokens["choices"].size(), 4U);
  EXPECT_EQ(tokens["choices"][3]["index"], 3);
  EXPECT_EQ(tokens["choices"][1]["prompt_token_ids"], json({1, 2, 10}));
  EXPECT_EQ(tokens["choices"][2]["prompt_token_ids"], json({3}));
  EXPECT_EQ(tokens["choices"][0]["token_ids"].size(), 3U);
  EXPECT_EQ(tokens["choices"][0]["logprobs"]["token_logprobs"].size(), 3U);
  EXPECT_EQ(tokens["usage"]["prompt_tokens"], 4);
  // The same seed gives the same tokens.
  EXPECT_EQ(answer(200, "/v1/completions", ids)["choices"], tokens["choices"]);
  json streamed = ids;
  streamed["stream"] = true;
  const auto events = post("/v1/completions", streamed);
  EXPECT_EQ(events->headers.at("content-type"), "text/event-stream");
  EXPECT_TRUE(events->body.ends_with("\n\ndata: [DONE]\n\n"));
}

TEST_F(OpenAiTest, AnAdapterIsSampledByItsNameAndItsVersion) {
  const std::string version = std::to_string(publish(token_, "policy"));
  json body{{"model", "policy"}, {"prompt", "1"}, {"max_tokens", 2}, {"seed", 1}};
  const json newest = answer(200, "/v1/completions", body);
  body["model"] = "policy@" + version;
  EXPECT_EQ(answer(200, "/v1/completions", body)["choices"], newest["choices"]);
  body["model"] = "policy@0";
  (void)answer(200, "/v1/completions", body);
  for (const char* name : {"policy@99", "policy@", "policy@x", "@1", "other", "base:other"}) {
    body["model"] = name;
    EXPECT_EQ(answer(404, "/v1/completions", body)["error"]["type"], "NotFoundError") << name;
  }
  // Of another job nothing is told, not even that it is there.
  (void)publish(open_job(12), "secret");
  body["model"] = "secret";
  const std::string there = answer(404, "/v1/completions", body)["error"]["message"];
  EXPECT_EQ(there, "The model `secret` does not exist.");
}

TEST_F(OpenAiTest, WhatIsWrongIsSaidWithItsField) {
  json error = answer(400, "/v1/completions", {{"model", "tiny"}, {"prompt", "xyz"}})["error"];
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(error["type"], "BadRequestError");
  error = answer(400, "/v1/completions", {{"prompt", "1"}, {"n", 0}})["error"];
  EXPECT_EQ(error["param"], "n");
  error = answer(400, "/v1/completions", {{"prompt", "1"}, {"max_tokens", 64}})["error"];
  EXPECT_EQ(error["code"], "TOO_LARGE");
  error = answer(400, "/v1/completions", {{"prompt", json::array({1000})}})["error"];
  EXPECT_NE(error["message"].get<std::string>().find("vocabulary"), std::string::npos);
  error = answer(400, "/v1/chat/completions",
                 {{"messages", {{{"role", "user"}, {"content", "1"}}}}})["error"];
  EXPECT_NE(error["message"].get<std::string>().find("chat template"), std::string::npos);
  EXPECT_EQ(web().post("/v1/completions", "{", bearer_)->status, 400);
  EXPECT_EQ(web().post("/v1/completions", std::string((1 << 20) + 1, ' '), bearer_)->status, 413);
}

TEST_F(OpenAiTest, TokensThereAndBack) {
  const json tokens = answer(200, "/tokenize", {{"prompt", "1+2"}, {"return_token_strs", true}});
  EXPECT_EQ(tokens["tokens"], json({1, 10, 2}));
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_EQ(tokens["max_model_len"], 64);
  EXPECT_EQ(tokens["token_strs"], json({"1", "+", "2"}));
  EXPECT_EQ(answer(200, "/detokenize", {{"tokens", {1, 10, 2}}})["prompt"], "1+2");
  EXPECT_EQ(answer(200, "/detokenize", {{"tokens", {31, 2147483647}}})["prompt"],
            "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(answer(400, "/detokenize", {{"tokens", {-1}}})["error"]["param"], "tokens");
}

// Ops that do not end before they are cancelled.
class SlowEngineTest : public OpenAiTest {
 protected:
  SlowEngineTest() { faults_.op_time = Duration{3600 * kSecond.ns}; }
  HttpClient begin() {
    HttpClient client = web();
    EXPECT_TRUE(
        client.send(post_request("/v1/completions", R"({"prompt":"1","max_tokens":2})", bearer_)));
    return client;
  }
  std::size_t ops() { return node_->ops().all().size(); }
};

TEST_F(SlowEngineTest, AFullQueueSaysWhenToComeAgain) {
  std::vector<HttpClient> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(begin());
  until([&] { return ops() == 4; });
  const auto refused = post("/v1/completions", {{"prompt", "1"}});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(json::parse(refused->body)["error"]["code"], "BUSY");
  EXPECT_EQ(refused->headers.count("retry-after"), 1U);
}

TEST_F(SlowEngineTest, AClientThatGoesAwayTakesItsOpAlong) {
  HttpClient stays = begin();
  until([&] { return ops() == 1; });
  HttpClient goes = begin();
  until([&] { return ops() == 2; });
  goes.close();
  until([&] { return ops() == 1; });
}

TEST_F(SlowEngineTest, TheEndOfTheJobIsToldToWhatWaits) {
  HttpClient waits = begin();
  until([&] { return ops() == 1; });
  wire::CloseJobT close;
  close.job_id = 11;
  ASSERT_TRUE(connect()->call<wire::DoneT>(close, soon()));
  EXPECT_EQ(waits.read()->status, 401);
  until([&] { return ops() == 0; });
}

TEST_F(SlowEngineTest, ARestartIsToldAsSomethingToRetry) {
  HttpClient waits = begin();
  until([&] { return ops() == 1; });
  on_loop([&] {
    (void)node_->drain();
    http_->drain();
    http_->refuse_waiting(error(Code::UNAVAILABLE, "a restart"));
  });
  const auto told = waits.read();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->status, 503);
  EXPECT_EQ(told->headers.count("retry-after"), 1U);
}

}  // namespace
}  // namespace plexrl::http
