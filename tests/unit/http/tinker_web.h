// SPDX-License-Identifier: Apache-2.0
// TinkerTest: a client of the Tinker API of job 11, and the bodies that it sends.
#pragma once

#include "web_node.h"

namespace plexrl::http {

using nlohmann::json;

class TinkerTest : public WebNodeTest {
 protected:
  struct Reply {
    int status = 0;
    std::string type;
    std::string body;
    [[nodiscard]] json document() const { return json::parse(body, nullptr, false); }
  };

  Reply call(const std::string& path, const std::string& body, const std::string& headers,
             const std::string& token) {
    const auto reply =
        web().post("/api/v1/" + path, body, "X-API-Key: tml-" + token + "\r\n" + headers);
    EXPECT_TRUE(reply) << path;
    if (!reply) return {};
    return {reply->status, reply->headers.at("content-type"), reply->body};
  }
  json ask(const std::string& path, const json& body, int status = 200) {
    const Reply reply = call(path, body.dump(), "Content-Type: application/json\r\n", token_);
    EXPECT_EQ(reply.status, status) << path << ": " << reply.body;
    return reply.document();
  }
  json result(const json& promise, int status = 200) {
    return ask("retrieve_future", {{"request_id", promise.value("request_id", "")}}, status);
  }

  std::string new_session() {
    return ask("create_session",
               {{"tags", json::array()}, {"sdk_version", "0.38.0"}})["session_id"];
  }
  json new_model(const std::string& session, int number, int rank = 4) {
    return result(
        ask("create_model", {{"session_id", session},
                             {"model_seq_id", number},
                             {"base_model", "tiny"},
                             {"optimizer_config", {{"type", "adamw"}}},
                             {"lora_config", {{"rank", rank}, {"train_unembed", true}}}}));
  }
  static json pass(const std::string& model, int seq, const char* loss = "cross_entropy") {
    const auto tensor = [](json data, const char* type) {
      return json{{"data", std::move(data)}, {"dtype", type}};
    };
    json inputs{{"target_tokens", tensor({2, 3, 4}, "int64")}};
    if (std::string(loss) == "cross_entropy") {
      inputs["weights"] = tensor({0.0, 1.0, -1.0}, "float32");
    } else {
      inputs["logprobs"] = tensor({-1.0, -1.0, -1.0}, "float32");
      inputs["advantages"] = tensor({0.0, 1.0, -1.0}, "float32");
    }
    const json chunk{{"type", "encoded_text"}, {"tokens", {1, 2, 3}}};
    const json datum{{"model_input", {{"chunks", {chunk}}}}, {"loss_fn_inputs", inputs}};
    return {{"model_id", model},
            {"seq_id", seq},
            {"forward_backward_input", {{"data", {datum, datum}}, {"loss_fn", loss}}}};
  }
  static json step(const std::string& model, int seq) {
    return {{"model_id", model}, {"seq_id", seq}, {"adam_params", {{"learning_rate", 0.01}}}};
  }
};

}  // namespace plexrl::http
