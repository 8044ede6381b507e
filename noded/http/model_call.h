// SPDX-License-Identifier: Apache-2.0
// ModelCall: the handler of a request that names a model. Finds the model, makes the one that
// samples a base, has the tokenizer read, and then calls ready(); runs an op by the OpService as
// any client's. When the client goes the op does. Loop thread only.
#pragma once

#include <memory>
#include <string>

#include "http/http_server.h"
#include "http/model_names.h"
#include "http/text_codec.h"

namespace plexrl::http {

class CompletionGate;
class TinkerState;

// What handlers work with; outlives them.
struct HttpContext {
  runtime::NodeRuntime& node;
  TextCodecs& codecs;
  HttpServer* server = nullptr;  // set before the first request
  std::int64_t started_s = 0;    // Unix time, `created` of models
  TinkerState* tinker = nullptr;
  CompletionGate* gate = nullptr;
};

class ModelCall : public Handler {
 public:
  ModelCall(HttpContext& context, Exchange& exchange, TenantId tenant)
      : context_(context), exchange_(exchange), tenant_(tenant) {}
  ~ModelCall() override;

  // Answers by itself when there is no such model.
  void find_model(const std::string& name);

 protected:
  // model(), version() and codec() are there.
  virtual void ready() = 0;
  virtual void op_done(const wire::OpReplyT& reply);
  // The op has ended, well or not, and the answer is next.
  virtual void op_over() {}

  void submit(wire::OpArgsUnion args);
  // The op, if one runs, is cancelled and what it ends in is dropped; another may be submitted.
  void take_back();
  void answer(std::string json, const char* content_type = "application/json");
  void fail(const Status& why, std::uint32_t retry_after_ms = 0, const std::string& field = "");
  [[nodiscard]] const runtime::Model& model() const { return *model_; }
  [[nodiscard]] std::uint64_t version() const { return version_; }
  [[nodiscard]] const TextCodec& codec() const { return *codec_; }
  [[nodiscard]] HttpContext& context() { return context_; }
  [[nodiscard]] TenantId tenant() const { return tenant_; }
  [[nodiscard]] SessionId id() const { return exchange_.id(); }

 private:
  // The call of that request, if it still waits.
  [[nodiscard]] static ModelCall* find(HttpContext& context, SessionId id);
  void model_made(const Status& status);
  void codec_made(const Result<std::shared_ptr<const TextCodec>>& codec);
  [[nodiscard]] Status pick_version();
  void op_ended(const runtime::OpOutcome& outcome);

  HttpContext& context_;
  Exchange& exchange_;
  TenantId tenant_;
  NamedModel named_;
  const runtime::Model* model_ = nullptr;  // valid in ready()
  std::uint64_t version_ = 0;
  std::shared_ptr<const TextCodec> codec_;
  std::uint64_t op_request_ = 0;  // of the newest op; the session is this request's alone
};

}  // namespace plexrl::http
