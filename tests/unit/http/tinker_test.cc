// SPDX-License-Identifier: Apache-2.0
// The Tinker API as its client speaks it, on fake engines.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "http/proto_wire.h"
#include "tinker_web.h"

namespace plexrl::http {
namespace {

TEST_F(TinkerTest, AClientLearnsHowToBehave) {
  const json config = ask("client/config", {{"sdk_version", "0.38.0"}});
  EXPECT_EQ(config["pjwt_auth_enabled"], false);
  EXPECT_EQ(config["parallel_fwdbwd_chunks"], false);
  EXPECT_EQ(config["sample_max_concurrent_requests"], 128);
  EXPECT_EQ(ask("client/dynamic_config", {})["refresh_interval_sec"], 300);
  EXPECT_EQ(ask("telemetry", {{"events", json::array()}})["status"], "accepted");
  HttpClient client = web();
  const std::string key = "X-API-Key: tml-" + token_ + "\r\n";
  EXPECT_EQ(json::parse(client.get("/api/v1/healthz", key)->body)["status"], "ok");
  const auto capabilities = client.get("/api/v1/get_server_capabilities", key);
  EXPECT_EQ(json::parse(capabilities->body)["supported_models"][0]["model_name"], "tiny");
  EXPECT_EQ(client.get("/api/v1/healthz")->status, 401);
}

TEST_F(TinkerTest, SessionsAreTheJobsOwn) {
  const std::string session = new_session();
  EXPECT_NE(session, new_session());
  EXPECT_EQ(ask("session_heartbeat", {{"session_id", session}})["type"], "session_heartbeat");
  (void)ask("session_heartbeat", {{"session_id", session.substr(1) + "0"}}, 404);
  (void)ask("session_heartbeat", {{"session_id", ""}}, 404);
  const Reply stranger =
      call("session_heartbeat", json{{"session_id", session}}.dump(), "", open_job(12));
  EXPECT_EQ(stranger.status, 404);
}

TEST_F(TinkerTest, ModelsAreMadeDescribedAndUnloaded) {
  const std::string session = new_session();
  EXPECT_EQ(new_model(session, 0)["model_id"], session + ":train:0");
  EXPECT_EQ(new_model(session, 0)["type"], "create_model");
  const std::string id = new_model(session, 1)["model_id"];
  const json info = ask("get_info", {{"model_id", id}});
  EXPECT_EQ(info["model_data"]["model_name"], "tiny");
  EXPECT_EQ(info["lora_rank"], 4);
  EXPECT_EQ(info["is_lora"], true);
  // The grant has rank 8; the same number with another rank is another model.
  EXPECT_EQ(new_model(session, 2, 32)["category"], "user");
  EXPECT_NE(new_model(session, 2, 32).value("error", "").find("rank 32"), std::string::npos);
  EXPECT_NE(new_model(session, 1, 8).value("error", ""), "");
  EXPECT_EQ(result(ask("unload_model", {{"model_id", id}}))["model_id"], id);
  (void)ask("get_info", {{"model_id", id}}, 404);
  const Reply stranger =
      call("get_info", json{{"model_id", session + ":train:0"}}.dump(), "", open_job(12));
  EXPECT_EQ(stranger.status, 404);
}

TEST_F(TinkerTest, WhatAModelCannotBeIsSaid) {
  const std::string session = new_session();
  const json good{{"session_id", session}, {"model_seq_id", 0}, {"base_model", "tiny"}};
  const auto field = [&](const char* name, const json& value) {
    json body = good;
    body[name] = value;
    return ask("create_model", body, 400).value("field", "");
  };
  EXPECT_EQ(field("model_seq_id", -1), "model_seq_id");
  EXPECT_EQ(field("base_model", ""), "base_model");
  EXPECT_EQ(field("lora_config", {{"train_mlp", false}}), "lora_config");
  EXPECT_EQ(field("optimizer_config", {{"type", "muon"}}), "optimizer_config");
  json other = good;
  other["base_model"] = "other";
  EXPECT_EQ(result(ask("create_model", other))["category"], "user");
  other["session_id"] = "0123";
  (void)ask("create_model", other, 404);
}

TEST_F(TinkerTest, AModelIsTrained) {
  const std::string id = new_model(new_session(), 0)["model_id"];
  const json first = ask("forward_backward", pass(id, 1));
  const json second = ask("optim_step", step(id, 2));
  EXPECT_EQ(first["model_id"], id);
  const json done = result(first);
  ASSERT_EQ(done["loss_fn_outputs"].size(), 2U) << done.dump();
  EXPECT_EQ(done["loss_fn_outputs"][1]["logprobs"]["data"].size(), 3U);
  EXPECT_TRUE(done["metrics"].contains("loss:sum"));
  EXPECT_TRUE(result(second)["metrics"].contains("grad_norm"));
  // The same number is the same call, and its result can be read again.
  EXPECT_EQ(ask("forward_backward", pass(id, 1)), first);
  EXPECT_EQ(result(first), done);
  int seq = 3;
  for (const char* loss : {"cross_entropy", "importance_sampling", "ppo", "cispo", "dro"}) {
    const json more = result(ask("forward_backward", pass(id, seq++, loss)));
    EXPECT_TRUE(more.contains("metrics")) << more.dump();
  }
}

TEST_F(TinkerTest, ForwardOnlyAndMessages) {
  const std::string id = new_model(new_session(), 0)["model_id"];
  json forward = pass(id, 1);
  forward["forward_input"] = forward["forward_backward_input"];
  forward.erase("forward_backward_input");
  const json promise = ask("forward", forward);
  EXPECT_EQ(result(promise)["loss_fn_outputs"].size(), 2U);
  const Reply message =
      call("retrieve_future", promise.dump(), "Accept: application/x-protobuf\r\n", token_);
  EXPECT_EQ(message.status, 200);
  EXPECT_EQ(message.type, "application/x-protobuf");
  ProtoReader fields(message.body);
  ASSERT_TRUE(fields.next());
  EXPECT_EQ(fields.bytes(), "ArrayRecord");
  ProtoWriter body;
  body.bytes(1, id);
  body.varint(2, 2);
  body.bytes(4, "cross_entropy");
  const Reply empty =
      call("forward_backward", body.message(), "Content-Type: application/x-protobuf\r\n", token_);
  ASSERT_EQ(empty.status, 200) << empty.body;
  const json refused = result(empty.document());
  EXPECT_EQ(refused["category"], "user");
  EXPECT_NE(refused["error"].get<std::string>().find("1 to 4096"), std::string::npos);
}

TEST_F(TinkerTest, PartsMayComeInAnyOrder) {
  const std::string id = new_model(new_session(), 0)["model_id"];
  const json third = ask("optim_step", step(id, 3));
  const json second = ask("forward_backward", pass(id, 2));
  HttpClient waits = web();
  ASSERT_TRUE(waits.send(
      post_request("/api/v1/retrieve_future", third.dump(), "X-API-Key: " + token_ + "\r\n")));
  const json first = ask("forward_backward", pass(id, 1));
  EXPECT_TRUE(result(first).contains("metrics"));
  EXPECT_TRUE(result(second).contains("metrics"));
  const auto told = waits.read();
  ASSERT_TRUE(told);
  EXPECT_TRUE(json::parse(told->body)["metrics"].contains("grad_norm"));
}

TEST_F(TinkerTest, AMistakeUsesItsNumberUp) {
  const std::string id = new_model(new_session(), 0)["model_id"];
  EXPECT_EQ(result(ask("forward_backward", pass(id, 1, "dppo")))["category"], "user");
  json wrong = pass(id, 2);
  wrong["forward_backward_input"]["data"][0]["loss_fn_inputs"]["mask"] =
      wrong["forward_backward_input"]["data"][0]["loss_fn_inputs"]["weights"];
  EXPECT_NE(result(ask("forward_backward", wrong)).value("error", "").find("'mask'"),
            std::string::npos);
  json optimizer = step(id, 3);
  optimizer.erase("adam_params");
  optimizer["optimizer_params"] = {{"type", "muon"}};
  EXPECT_NE(result(ask("optim_step", optimizer)).value("error", "").find("AdamW"),
            std::string::npos);
  // The next number goes on.
  EXPECT_TRUE(result(ask("forward_backward", pass(id, 4))).contains("metrics"));
  // Without a number there is nothing to use up.
  EXPECT_EQ(ask("forward_backward", pass(id, 0), 400).value("field", ""), "seq_id");
  EXPECT_EQ(ask("optim_step", {{"seq_id", 1}}, 400).value("field", ""), "model_id");
  (void)ask("forward_backward", pass(id + "0", 1), 404);
}

TEST_F(TinkerTest, PromisesThatNobodyGaveAreRefused) {
  const std::string id = new_model(new_session(), 0)["model_id"];
  for (const char* request : {"", "x", "f", "z/m/1/0/", "f/m/1", "f/m/-1/0/", "f/m/01/0/"})
    (void)ask("retrieve_future", {{"request_id", request}}, 400);
  (void)ask("retrieve_future", {{"request_id", "f/policy/1/0/"}}, 404);
  const json unknown = ask("retrieve_future", {{"request_id", "f/" + id + "/7/0/"}});
  EXPECT_EQ(unknown["category"], "server");
  EXPECT_NE(unknown["error"].get<std::string>().find("not kept"), std::string::npos);
}

TEST_F(TinkerTest, LargeBodiesAreTakenAsMessagesOnly) {
  EXPECT_EQ(call("forward_backward", std::string((4U << 20) + 1, ' '),
                 "Content-Type: application/json\r\n", token_)
                .status,
            413);
  EXPECT_EQ(call("forward_backward", std::string(5U << 20, '\0'),
                 "Content-Type: application/x-protobuf\r\n", token_)
                .status,
            400);
}

// 64 MiB are read, and found to be no message; a byte more is not.
TEST_F(TinkerTest, TheLimitOfAMessageIsExact) {
  constexpr std::size_t kLimit = std::size_t{64} << 20;
  for (const std::size_t more : {0U, 1U})
    EXPECT_EQ(call("forward_backward", std::string(kLimit + more, '\0'),
                   "Content-Type: application/x-protobuf\r\n", token_)
                  .status,
              more == 0 ? 400 : 413);
}

class SlowTinkerTest : public TinkerTest {
 protected:
  SlowTinkerTest() { site_.daemon.max_queued_ops_per_tenant = 2; }
};

TEST_F(SlowTinkerTest, AFullQueueSaysWhenToComeAgain) {
  const std::string id = new_model(new_session(), 0)["model_id"];
  (void)ask("forward_backward", pass(id, 2));
  (void)ask("forward_backward", pass(id, 3));
  const json refused = ask("forward_backward", pass(id, 4), 429);
  EXPECT_EQ(refused["code"], "BUSY");
  EXPECT_EQ(ask("forward_backward", pass(id, 3))["model_id"], id);
}

}  // namespace
}  // namespace plexrl::http
