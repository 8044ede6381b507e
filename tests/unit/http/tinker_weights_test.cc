// SPDX-License-Identifier: Apache-2.0
// Sampling, saves, loads and checkpoints of the Tinker API, on fake engines.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "http/proto_wire.h"
#include "tinker_web.h"

namespace plexrl::http {
namespace {

class TinkerWeightsTest : public TinkerTest {
 protected:
  void SetUp() override {
    TinkerTest::SetUp();
    if (IsSkipped()) return;
    session_ = new_session();
    model_ = new_model(session_, 0)["model_id"];
  }
  json save(const char* route, int seq, const json& more) {
    json body{{"model_id", model_}, {"seq_id", seq}};
    body.update(more);
    return result(ask(route, body));
  }
  std::string publish(int seq) {
    return save("save_weights_for_sampler", seq,
                {{"sampling_session_seq_id", seq}})["sampling_session_id"];
  }
  std::string sampler(const json& of) {
    json body{{"session_id", session_}, {"sampling_session_seq_id", 5}};
    body.update(of);
    return ask("create_sampling_session", body)["sampling_session_id"];
  }
  static json sample(const std::string& sampler, int seq) {
    const json chunk{{"type", "encoded_text"}, {"tokens", {1, 2, 3}}};
    return {{"sampling_session_id", sampler},
            {"seq_id", seq},
            {"num_samples", 2},
            {"prompt", {{"chunks", {chunk}}}},
            {"sampling_params", {{"max_tokens", 4}, {"seed", 3}, {"temperature", 1}}}};
  }
  HttpReply get(const std::string& path) {
    return *web().get("/api/v1/" + path, "X-API-Key: " + token_ + "\r\n");
  }
  std::size_t checkpoints() { return json::parse(get("checkpoints").body)["checkpoints"].size(); }

  std::string session_, model_;
};

TEST_F(TinkerWeightsTest, BasesAndVersionsAreSampled) {
  const std::string of_version = publish(1);
  const std::string of_base = sampler({{"base_model", "tiny"}});
  for (const std::string& id : {of_version, of_base}) {
    const json promise = ask("asample", sample(id, 0));
    const json made = result(promise);
    ASSERT_EQ(made["sequences"].size(), 2U) << made.dump();
    EXPECT_EQ(made["sequences"][0]["tokens"].size(), 4U);
    EXPECT_EQ(made["sequences"][0]["logprobs"].size(), 4U);
    EXPECT_EQ(made["sequences"][0]["stop_reason"], "length");
    EXPECT_EQ(result(promise), made);
    EXPECT_EQ(ask("asample", sample(id, 0)), promise);
    EXPECT_NE(ask("asample", sample(id, 1)), promise);
    EXPECT_EQ(json::parse(get("samplers/" + id).body)["base_model"], "tiny");
  }
}

TEST_F(TinkerWeightsTest, SamplesAreMessagesForWhoAsks) {
  const json promise = ask("asample", sample(sampler({{"base_model", "tiny"}}), 0));
  const json made = result(promise);
  const Reply reply =
      call("retrieve_future", promise.dump(), "Accept: application/x-protobuf\r\n", token_);
  EXPECT_EQ(reply.type, "application/x-protobuf");
  ProtoReader fields(reply.body);
  ASSERT_TRUE(fields.next());
  ProtoReader sequence(fields.bytes());
  ASSERT_TRUE(sequence.next());
  EXPECT_EQ(sequence.value(), 1U);  // length
  ASSERT_TRUE(sequence.next());
  EXPECT_EQ(sequence.number(), 2U);
  ASSERT_EQ(sequence.bytes().size(), 16U);
  EXPECT_EQ(static_cast<int>(sequence.bytes()[0]), made["sequences"][0]["tokens"][0]);
}

TEST_F(TinkerWeightsTest, PromptLogprobsBeginWithNone) {
  json body = sample(sampler({{"base_model", "tiny"}}), 0);
  body["prompt_logprobs"] = true;
  const json all = result(ask("asample", body))["prompt_logprobs"];
  ASSERT_EQ(all.size(), 3U);
  EXPECT_TRUE(all[0].is_null());
  EXPECT_TRUE(all[1].is_number() && all[2].is_number());
  body["seq_id"] = 1;
  body["prompt_logprobs_last_n"] = 1;
  const json last = result(ask("asample", body))["prompt_logprobs"];
  EXPECT_TRUE(last[1].is_null());
  EXPECT_EQ(last[2], all[2]);
}

TEST_F(TinkerWeightsTest, OnlyTheNewestVersionIsThere) {
  const std::string before = publish(1);
  const std::string now = publish(2);
  EXPECT_NE(before, now);
  EXPECT_EQ(result(ask("asample", sample(before, 0)))["category"], "user");
  EXPECT_TRUE(result(ask("asample", sample(now, 0))).contains("sequences"));
}

TEST_F(TinkerWeightsTest, ASampleThatIsWrongIsRefused) {
  const std::string id = sampler({{"base_model", "tiny"}});
  const auto field = [&](const char* name, const json& value) {
    json body = sample(id, 0);
    body[name] = value;
    return ask("asample", body, 400).value("field", "");
  };
  EXPECT_EQ(field("num_samples", 0), "num_samples");
  EXPECT_EQ(field("topk_prompt_logprobs", 2), "topk_prompt_logprobs");
  EXPECT_EQ(field("prompt", {{"chunks", json::array()}}), "prompt");
  EXPECT_EQ(field("sampling_params", {{"top_k", 5}}), "sampling_params");
  EXPECT_EQ(field("sampling_params", {{"stop", {"a", ""}}}), "sampling_params");
  for (const char* name : {"", "x", "0123456789abcdef:sample:0:b:0"})
    EXPECT_EQ(ask("asample", sample(name, 0), 404)["code"], "NOT_FOUND") << name;
  (void)ask("create_sampling_session", {{"session_id", session_}, {"base_model", "other"}}, 404);
  json lost = {{"request_id", "g//1/1/"}};
  EXPECT_EQ(ask("retrieve_future", lost, 410)["code"], "LOST");
}

TEST_F(TinkerWeightsTest, WhatWasSavedIsLoadedAndSampled) {
  (void)result(ask("forward_backward", pass(model_, 1)));
  (void)result(ask("optim_step", step(model_, 2)));
  const std::string path = save("save_weights", 3, {{"path", "a"}})["path"];
  EXPECT_EQ(path, "tinker://" + model_ + "/weights/a");
  const std::string named = save("save_weights_for_sampler", 4, {{"path", "b"}})["path"];
  EXPECT_EQ(named, "tinker://" + model_ + "/sampler_weights/b");
  const json info = ask("weights_info", {{"tinker_path", path}});
  EXPECT_EQ(info["base_model"], "tiny");
  EXPECT_EQ(info["lora_rank"], 4);
  const std::string other = new_model(session_, 1)["model_id"];
  const json load{{"model_id", other}, {"seq_id", 1}, {"path", path}, {"optimizer", true}};
  EXPECT_EQ(result(ask("load_weights", load))["model_id"], other);
  const std::string of_path = sampler({{"model_path", named}});
  EXPECT_TRUE(result(ask("asample", sample(of_path, 0))).contains("sequences"));
  EXPECT_EQ(json::parse(get("samplers/" + of_path).body)["model_path"], named);
}

TEST_F(TinkerWeightsTest, CheckpointsAreListedAndRemoved) {
  const std::string path = save("save_weights", 1, {{"path", "a"}})["path"];
  (void)save("save_weights_for_sampler", 2, {{"path", "a"}});
  EXPECT_EQ(checkpoints(), 2U);
  const json run = json::parse(get("training_runs/" + model_).body);
  EXPECT_EQ(run["last_checkpoint"]["tinker_path"], path);
  EXPECT_EQ(run["base_model"], "tiny");
  const json runs = json::parse(get("training_runs?limit=1&offset=0").body);
  EXPECT_EQ(runs["cursor"]["total_count"], 1);
  EXPECT_EQ(json::parse(get("training_runs?offset=7").body)["training_runs"].size(), 0U);
  const auto remove = [&](const std::string& id) {
    HttpClient client = web();
    (void)client.send("DELETE /api/v1/training_runs/" + model_ + "/checkpoints/" + id +
                      " HTTP/1.1\r\nHost: x\r\nX-API-Key: " + token_ + "\r\n\r\n");
    const auto reply = client.read();
    return reply ? reply->status : 0;
  };
  EXPECT_EQ(remove("weights/a"), 204);
  EXPECT_EQ(remove("weights/a"), 404);
  EXPECT_EQ(remove("a"), 400);
  EXPECT_EQ(remove("weights/../a"), 400);
  EXPECT_EQ(checkpoints(), 1U);
  EXPECT_EQ(get("training_runs/" + model_ + "/checkpoints/weights/a/archive").status, 400);
  (void)ask("weights_info", {{"tinker_path", path}}, 404);
  // Another user's are as unknown as those that do not exist.
  const Reply stranger =
      call("weights_info", json{{"tinker_path", "tinker://" + model_ + "/weights/b"}}.dump(), "",
           open_job(12));
  EXPECT_EQ(stranger.status, 404);
}

// One call in place of weights_info, create_model and load_weights; the next call has number 1.
TEST_F(TinkerWeightsTest, AModelIsMadeByALoad) {
  const std::string path = save("save_weights", 1, {{"path", "a"}})["path"];
  json load{{"session_id", session_}, {"model_seq_id", 7}, {"path", path}, {"optimizer", true}};
  const json promise = ask("load_weights", load);
  const std::string made = result(promise)["model_id"];
  EXPECT_EQ(made, session_ + ":train:7");
  EXPECT_EQ(ask("load_weights", load), promise);
  EXPECT_EQ(result(promise)["type"], "load_weights");
  EXPECT_EQ(ask("get_info", {{"model_id", made}})["model_id"], made);
  EXPECT_TRUE(result(ask("forward_backward", pass(made, 1))).contains("metrics"));
  const json stepped = ask("optim_step", step(made, 2));
  EXPECT_TRUE(result(stepped).contains("metrics"));
  EXPECT_EQ(ask("optim_step", step(made, 2)), stepped);
  const json named{{"model_id", made}, {"seq_id", 3}, {"path", "b"}};
  EXPECT_EQ(result(ask("save_weights", named))["path"], "tinker://" + made + "/weights/b");
  EXPECT_EQ(result(ask("save_weights", named))["path"], "tinker://" + made + "/weights/b");
  EXPECT_EQ(get("training_runs/" + made).status, 200);
  // The number is taken, by either way.
  EXPECT_EQ(new_model(session_, 7)["category"], "user");
  load["model_seq_id"] = 0;
  EXPECT_EQ(result(ask("load_weights", load))["category"], "user");
  load["model_seq_id"] = 8;
  load["base_model"] = "other";
  EXPECT_EQ(ask("load_weights", load, 400)["field"], "base_model");
  load.erase("base_model");
  load["path"] = path + "b";
  (void)ask("load_weights", load, 404);
  EXPECT_EQ(result(ask("unload_model", {{"model_id", made}}))["model_id"], made);
}

TEST_F(TinkerWeightsTest, ANameIsTakenOnce) {
  const json body{{"model_id", model_}, {"seq_id", 1}, {"path", "a"}};
  const json promise = ask("save_weights", body);
  (void)result(promise);
  EXPECT_EQ(ask("save_weights", body), promise);
  EXPECT_TRUE(result(promise).contains("path"));
  EXPECT_NE(save("save_weights", 2, {{"path", "a"}}).value("error", "").find("overwrite"),
            std::string::npos);
  EXPECT_TRUE(save("save_weights", 3, {{"path", "a"}, {"overwrite", true}}).contains("path"));
  EXPECT_EQ(save("save_weights", 4, {{"path", "../a"}})["category"], "user");
  EXPECT_EQ(save("save_weights_for_sampler", 5, {{"kind", "inflight"}})["category"], "user");
  const json load{{"model_id", model_}, {"seq_id", 6}, {"path", "tinker://x/weights/a"}};
  EXPECT_EQ(result(ask("load_weights", load))["category"], "user");
  EXPECT_TRUE(save("save_weights", 7, {{"path", "c"}}).contains("path"));
}

TEST_F(TinkerWeightsTest, FewCheckpointsAreReadyAtATime) {
  std::vector<std::string> samplers;
  for (int i = 1; i <= 6; ++i)
    samplers.push_back(sampler(
        {{"model_path", save("save_weights_for_sampler", i, {{"path", "n" + std::to_string(i)}})
                            .value("path", "")}}));
  for (int round = 0; round < 2; ++round)
    for (const std::string& id : samplers) {
      const json made = result(ask("asample", sample(id, round)));
      EXPECT_TRUE(made.contains("sequences")) << made.dump();
    }
  on_loop([&] { EXPECT_LE(node_->models().all().size(), 6U); });
}

TEST_F(TinkerWeightsTest, TheSamplesOfAJobEndWithIt) {
  (void)result(ask("asample", sample(sampler({{"base_model", "tiny"}}), 0)));
  wire::CloseJobT close;
  close.job_id = 11;
  ASSERT_TRUE(connect()->call<wire::DoneT>(close, soon()));
  on_loop([&] { EXPECT_EQ(front_->tinker().samples().held(), 0U); });
}

class FullTinkerQueueTest : public TinkerWeightsTest {
 protected:
  FullTinkerQueueTest() {
    site_.daemon.max_queued_ops_per_tenant = 2;
    faults_.op_time = Duration{3600 * kSecond.ns};
  }
};

TEST_F(FullTinkerQueueTest, ASampleThatFindsNoRoomIsAskedForLater) {
  const std::string id = sampler({{"base_model", "tiny"}});
  const json first = ask("asample", sample(id, 0));
  (void)ask("asample", sample(id, 1));
  EXPECT_EQ(ask("asample", sample(id, 2), 429)["code"], "BUSY");
  // What is under way has its promise still.
  EXPECT_EQ(ask("asample", sample(id, 0)), first);
}

}  // namespace
}  // namespace plexrl::http
