// SPDX-License-Identifier: Apache-2.0
// What RL trainers ask of vLLM's server: adapters by name, pause and sleep. On fake engines.
#include <gtest/gtest.h>

#include "tinker_web.h"

namespace plexrl::http {
namespace {

class VllmTest : public TinkerTest {
 protected:
  HttpReply post(const std::string& path, const std::string& body = "",
                 const std::string& token = "") {
    const auto reply = web().post(path, body, key(token));
    EXPECT_TRUE(reply) << path;
    return reply.value_or(HttpReply());
  }
  HttpReply get(const std::string& path, const std::string& token = "") {
    return web().get(path, key(token)).value_or(HttpReply());
  }
  std::string key(const std::string& token) {
    return "X-API-Key: " + (token.empty() ? token_ : token) + "\r\n";
  }
  HttpReply load(const json& body) { return post("/v1/load_lora_adapter", body.dump()); }
  HttpReply complete(const std::string& model, const std::string& token = "") {
    return post("/v1/completions",
                json{{"model", model}, {"prompt", "1"}, {"max_tokens", 2}}.dump(), token);
  }
  // One that has no answer yet.
  HttpClient begin(const std::string& model = "tiny") {
    HttpClient client = web();
    const json body{{"model", model}, {"prompt", "1"}, {"max_tokens", 2}, {"n", 2}};
    EXPECT_TRUE(client.send(post_request("/v1/completions", body.dump(), key(""))));
    return client;
  }
  // A checkpoint of a LoRA model of the job.
  std::string checkpoint() {
    const std::string model = new_model(new_session(), 0)["model_id"];
    const json body{{"model_id", model}, {"seq_id", 1}, {"path", "a"}};
    return result(ask("save_weights", body))["path"];
  }
  std::size_t held() {
    const std::string text = get("/metrics").body;
    const std::string name = "\nplexrl_http_held_requests ";
    return std::stoul(text.substr(text.find(name) + name.size()));
  }
  // Asked from outside of the loop, as often as it takes.
  template <class Condition>
  void becomes(Condition condition) {
    const TimePoint end = soon();
    while (!condition() && system_clock().now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_TRUE(condition());
  }
};

TEST_F(VllmTest, AnAdapterIsLoadedByNameAndOnceMore) {
  const std::string path = checkpoint();
  const HttpReply loaded = load({{"lora_name", "ad"}, {"lora_path", path}});
  EXPECT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'ad' added successfully.");
  EXPECT_EQ(complete("ad").status, 200);
  EXPECT_EQ(get("/weight_info?model=ad").body, R"({"weight_version":"2"})");
  const json models = json::parse(get("/v1/models").body)["data"];
  EXPECT_EQ(models.back()["id"], "ad");
  EXPECT_EQ(models.back()["parent"], "tiny");
  EXPECT_EQ(load({{"lora_name", "ad"}, {"lora_path", path}}).status, 400);
  EXPECT_EQ(
      load({{"lora_name", "ad"}, {"lora_path", path}, {"load_inplace", true}, {"is_3d", 1}}).status,
      200);
  EXPECT_EQ(get("/weight_info?model=ad").body, R"({"weight_version":"4"})");
  EXPECT_EQ(complete("ad").status, 200);
  const HttpReply gone = post("/unload_lora_adapter", R"({"lora_name":"ad"})");
  EXPECT_EQ(gone.body, "Success: LoRA adapter 'ad' removed successfully.");
  EXPECT_EQ(complete("ad").status, 404);
  EXPECT_EQ(post("/v1/unload_lora_adapter", R"({"lora_name":"ad"})").status, 404);
}

TEST_F(VllmTest, WhatIsNoAdapterIsRefused) {
  const std::string path = checkpoint();
  const auto refused = [&](const json& body, int status, const char* field) {
    const HttpReply reply = load(body);
    EXPECT_EQ(reply.status, status) << body << reply.body;
    EXPECT_EQ(json::parse(reply.body)["error"]["param"], field) << body;
  };
  refused({{"lora_path", path}}, 400, "lora_name");
  refused({{"lora_name", "a/b"}, {"lora_path", path}}, 400, "lora_name");
  refused({{"lora_name", std::string(63, 'a')}, {"lora_path", path}}, 400, "lora_name");
  refused({{"lora_name", "tiny"}, {"lora_path", path}}, 400, "lora_name");
  refused({{"lora_name", "ad"}}, 400, "lora_path");
  refused({{"lora_name", "ad"}, {"lora_path", "/etc/passwd"}}, 400, "lora_path");
  refused({{"lora_name", "ad"}, {"lora_path", path + "b"}}, 404, "lora_path");
  refused({{"lora_name", "ad"}, {"lora_path", path}, {"load_inplace", 1}}, 400, "load_inplace");
  EXPECT_EQ(post("/v1/load_lora_adapter", "{").status, 400);
  EXPECT_EQ(post("/v1/unload_lora_adapter", "{}").status, 400);
  EXPECT_EQ(complete("ad").status, 404);
}

TEST_F(VllmTest, OfOtherJobsNothingIsTold) {
  ASSERT_EQ(load({{"lora_name", "ad"}, {"lora_path", checkpoint()}}).status, 200);
  const std::string other = open_job(12);
  EXPECT_EQ(complete("ad", other).status, 404);
  EXPECT_EQ(post("/unload_lora_adapter", R"({"lora_name":"ad"})", other).status, 404);
  EXPECT_EQ(get("/weight_info?model=ad", other).status, 404);
  EXPECT_EQ(post("/sleep?level=2", "", other).status, 200);
  EXPECT_EQ(post("/pause", "", other).status, 200);
  EXPECT_EQ(get("/is_paused").body, R"({"is_paused":false})");
  EXPECT_EQ(get("/is_sleeping").body, R"({"is_sleeping":false})");
  EXPECT_EQ(complete("ad").status, 200);
}

TEST_F(VllmTest, APausedJobsCompletionsWait) {
  EXPECT_EQ(post("/pause").body, R"({"status":"paused"})");
  EXPECT_EQ(get("/is_paused").body, R"({"is_paused":true})");
  EXPECT_EQ(get("/is_sleeping").body, R"({"is_sleeping":true})");
  std::vector<HttpClient> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(begin());
  becomes([&] { return held() == 3; });
  EXPECT_EQ(complete("other").status, 404);  // a mistake is told at once
  clients[1].close();
  becomes([&] { return held() == 2; });
  EXPECT_EQ(post("/resume").body, R"({"status":"resumed"})");
  EXPECT_EQ(clients[0].read()->status, 200);
  EXPECT_EQ(clients[2].read()->status, 200);
  EXPECT_EQ(get("/is_paused").body, R"({"is_paused":false})");
  EXPECT_EQ(post("/pause?mode=never").status, 400);
}

// Training goes on meanwhile: that is what a pause is for.
TEST_F(VllmTest, TrainingIsNotPaused) {
  (void)post("/pause");
  const std::string model = new_model(new_session(), 0)["model_id"];
  (void)result(ask("forward_backward", pass(model, 1)));
  EXPECT_TRUE(result(ask("optim_step", step(model, 2))).contains("metrics"));
}

TEST_F(VllmTest, AJobThatEndsLeavesNothingHeld) {
  (void)post("/pause");
  HttpClient waits = begin();
  becomes([&] { return held() == 1; });
  wire::CloseJobT close;
  close.job_id = 11;
  ASSERT_TRUE(connect()->call<wire::DoneT>(close, soon()));
  EXPECT_EQ(waits.read()->status, 401);
  becomes([&] { return held() == 0; });
}

TEST_F(VllmTest, ASleepThatDiscardsIsNotWokenWithoutWeights) {
  const std::string path = checkpoint();
  ASSERT_EQ(load({{"lora_name", "ad"}, {"lora_path", path}}).status, 200);
  EXPECT_EQ(post("/sleep?level=1").status, 200);
  EXPECT_EQ(get("/is_sleeping").body, R"({"is_sleeping":true})");
  EXPECT_EQ(load({{"lora_name", "b"}, {"lora_path", path}}).status, 400);
  EXPECT_EQ(post("/wake_up?tags=kv_cache").status, 200);
  EXPECT_EQ(get("/is_sleeping").body, R"({"is_sleeping":true})");
  EXPECT_EQ(post("/wake_up?tags=weights").status, 200);
  EXPECT_EQ(get("/is_sleeping").body, R"({"is_sleeping":false})");
  EXPECT_EQ(complete("ad").status, 200);

  EXPECT_EQ(post("/sleep?tags=weights&tags=kv_cache").status, 200);
  EXPECT_EQ(post("/sleep").status, 200);  // it sleeps already
  HttpClient waits = begin();
  becomes([&] { return held() == 1; });
  const HttpReply refused = post("/wake_up");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("'ad'"), std::string::npos) << refused.body;
  EXPECT_EQ(post("/wake_up?tags=weights").status, 200);
  EXPECT_EQ(post("/wake_up?tags=kv_cache").status, 400);
  int status = 0;
  becomes([&] {
    if (status != 200) status = load({{"lora_name", "ad"}, {"lora_path", path}}).status;
    return status == 200;
  });
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(post("/wake_up?tags=kv_cache").status, 200);
  EXPECT_EQ(waits.read()->status, 200);
  EXPECT_EQ(complete("ad").status, 200);
  EXPECT_EQ(post("/wake_up").status, 200);
}

TEST_F(VllmTest, ADiscardedAdapterMayBeGivenUp) {
  ASSERT_EQ(load({{"lora_name", "ad"}, {"lora_path", checkpoint()}}).status, 200);
  EXPECT_EQ(post("/sleep?level=2").status, 200);
  EXPECT_EQ(post("/wake_up").status, 400);
  EXPECT_EQ(post("/unload_lora_adapter", R"({"lora_name":"ad"})").status, 200);
  EXPECT_EQ(post("/wake_up").status, 200);
  EXPECT_EQ(complete("ad").status, 404);
  for (const char* query : {"level=3", "level=x", "tags=all", "mode=later", "level=1&level=2"})
    EXPECT_EQ(post(std::string("/sleep?") + query).status, 400) << query;
  EXPECT_EQ(post("/sleep?level=0").status, 200);
  EXPECT_EQ(post("/wake_up?tags=weights").status, 200);
  EXPECT_EQ(get("/is_sleeping").body, R"({"is_sleeping":false})");
}

TEST_F(VllmTest, SmallQuestions) {
  EXPECT_EQ(get("/get_world_size?include_dp=true").body, R"({"world_size":1})");
  EXPECT_EQ(get("/weight_info").body, R"({"weight_version":"0"})");
  EXPECT_EQ(post("/reset_prefix_cache").status, 200);
  EXPECT_EQ(get("/pause").status, 405);
  EXPECT_EQ(web().post("/pause", "", "")->status, 401);
}

// Ops that do not end before they are cancelled.
class SlowVllmTest : public VllmTest {
 protected:
  SlowVllmTest() { faults_.op_time = Duration{3600 * kSecond.ns}; }
  std::size_t ops() {
    std::size_t count = 0;
    on_loop([&] { count = node_->ops().all().size(); });
    return count;
  }
  void be_quick() {
    on_loop([&] { engine_->options().op_time = Duration{0}; });
  }
};

TEST_F(SlowVllmTest, WhatRunsIsAborted) {
  HttpClient runs = begin();
  becomes([&] { return ops() == 1; });
  EXPECT_EQ(post("/pause").status, 200);
  const json answer = json::parse(runs.read()->body);
  ASSERT_EQ(answer["choices"].size(), 2U) << answer;
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "abort");
  EXPECT_EQ(answer["choices"][1]["text"], "");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  becomes([&] { return ops() == 0; });
}

TEST_F(SlowVllmTest, WhatRunsIsKeptAndBeginsAnew) {
  HttpClient runs = begin();
  becomes([&] { return ops() == 1; });
  EXPECT_EQ(post("/pause?mode=keep").status, 200);
  becomes([&] { return held() == 1 && ops() == 0; });
  be_quick();
  EXPECT_EQ(post("/resume").status, 200);
  const json answer = json::parse(runs.read()->body);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
}

TEST_F(SlowVllmTest, WhatRunsIsWaitedFor) {
  HttpClient runs = begin();
  becomes([&] { return ops() == 1; });
  HttpClient pauses = web();
  ASSERT_TRUE(pauses.send(post_request("/pause?mode=wait", "", key(""))));
  becomes([&] { return get("/is_paused").body == R"({"is_paused":true})"; });
  HttpClient waits = begin();
  becomes([&] { return held() == 1; });
  EXPECT_EQ(ops(), 1U);
  runs.close();
  EXPECT_EQ(pauses.read()->body, R"({"status":"paused"})");
  EXPECT_EQ(held(), 1U);
  be_quick();
  EXPECT_EQ(post("/resume").status, 200);
  EXPECT_EQ(waits.read()->status, 200);
}

TEST_F(SlowVllmTest, AWaitThatIsUndoneSaysSo) {
  HttpClient runs = begin();
  becomes([&] { return ops() == 1; });
  HttpClient sleeps = web();
  ASSERT_TRUE(sleeps.send(post_request("/sleep?mode=wait&level=2", "", key(""))));
  becomes([&] { return get("/is_sleeping").body == R"({"is_sleeping":true})"; });
  EXPECT_EQ(post("/wake_up").status, 200);
  EXPECT_EQ(sleeps.read()->status, 400);
  becomes([&] { return ops() == 1; });
}

}  // namespace
}  // namespace plexrl::http
