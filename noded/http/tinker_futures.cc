// SPDX-License-Identifier: Apache-2.0
// retrieve_future: waits for what a promise names, for half a minute at most. Whoever asks again,
// and as often as it asks, gets the same answer.
#include "api/explain.h"
#include "http/tinker_calls.h"
#include "http/tinker_routes.h"
#include "http/tinker_state.h"

namespace plexrl::http {
namespace {

constexpr std::uint64_t kOpRequest = 1;  // the session is this request's alone

// The client ends its program over a failure, so it says whose mistake it was.
const char* category(const Status& why) {
  switch (why.code()) {
    case Code::INVALID_ARGUMENT:
    case Code::NOT_FOUND:
    case Code::EXISTS:
    case Code::PERMISSION:
    case Code::TOO_LARGE:
    case Code::UNSUPPORTED:
    case Code::NO_CAPACITY:
    case Code::CANCELLED:
      return "user";
    default:
      return "server";
  }
}

class RetrieveCall final : public TinkerPoll {
 public:
  RetrieveCall(HttpContext& context, Exchange& exchange, TenantId tenant, Promise promise,
               std::string id)
      : context_(context),
        exchange_(exchange),
        tenant_(tenant),
        promise_(std::move(promise)),
        id_(std::move(id)) {}
  ~RetrieveCall() override {
    if (awaits_) context_.node.op_service().session_closed(exchange_.id());
  }

  void start() {
    switch (promise_.kind) {
      case Promise::kCreateModel:
      case Promise::kCreateByLoad:
        return create_model();
      case Promise::kUnloadModel:
        return answer_json(exchange_, Json{{"type", "unload_model"}, {"model_id", promise_.model}});
      case Promise::kForwardBackward:
      case Promise::kOptimStep:
      case Promise::kSaveWeights:
      case Promise::kSaveSampler:
      case Promise::kPublish:
      case Promise::kLoadWeights:
        return await_op();
      case Promise::kSample:
        return await_sample();
    }
  }

  void time_over() override {
    const char* state = "active";
    std::string reason = reason_;
    const runtime::Model* const model = find_tinker_model(context_, tenant_, promise_.model);
    const runtime::Op* op = nullptr;
    if (awaits_ && model != nullptr) op = context_.node.ops().find_seq(model->id, seq());
    if (const TinkerSamples::Sample* const sample = find_sample())
      op = context_.node.ops().find_request(TinkerState::owner(tenant_), sample->op_request);
    if (op != nullptr) reason = api::explain(context_.node, *op);
    const bool runs = op != nullptr && (op->state == runtime::OpState::kRunning ||
                                        op->state == runtime::OpState::kCommitting);
    if (!runs && !reason.empty()) state = "paused_capacity";
    Json body{{"type", "try_again"}, {"request_id", id_}, {"queue_state", state}};
    if (!reason.empty()) body["queue_state_reason"] = reason;
    Response response;
    response.status = 408;
    response.body = dump_json(body);
    exchange_.answer(std::move(response));
  }

  void sample_over() override { await_sample(); }

 private:
  [[nodiscard]] TinkerSamples::Sample* find_sample() {
    if (promise_.kind != Promise::kSample) return nullptr;
    return context_.tinker->samples().find(tenant_, promise_);
  }

  void await_sample() {
    TinkerSamples::Sample* const sample = find_sample();
    if (sample == nullptr)
      return answer_refusal(exchange_, error(Code::LOST, "the sample is gone; ask for it anew"));
    if (!sample->done) {
      sample->polls.insert(exchange_.id());
      return context_.tinker->hold(exchange_.id(), TinkerState::kPollTime);
    }
    if (!sample->status.ok()) return fail(sample->status);
    Response response;
    const bool message = wants_message();
    response.body = message ? sample_message(sample->result) : sample_json(sample->result);
    if (message) response.content_type = kProtobuf;
    exchange_.answer(std::move(response));
  }

  [[nodiscard]] bool wants_message() {
    return exchange_.request().accept.find(kProtobuf) != std::string::npos;
  }

  static RetrieveCall* find(HttpContext& context, SessionId id) {
    Exchange* const exchange = context.server->find(id);
    if (exchange == nullptr || exchange->is_answered()) return nullptr;
    return static_cast<RetrieveCall*>(exchange->handler());
  }

  void fail(const Status& why) {
    answer_json(exchange_, Json{{"error", why.text()}, {"category", category(why)}});
  }

  [[nodiscard]] bool by_load() const { return promise_.kind == Promise::kCreateByLoad; }
  // Of the op that is waited for, in the model's stream.
  [[nodiscard]] std::uint64_t seq() const { return by_load() ? 1 : promise_.a; }

  // Asked for once more it is the same model, or it fails for the same reason.
  void create_model() {
    const std::string name = by_load() ? name_by_load(promise_.model) : promise_.model;
    const std::string other = by_load() ? promise_.model : name_by_load(promise_.model);
    if (context_.node.models().find(tenant_, other) != nullptr)
      return fail(error(Code::EXISTS, "there is a model of this number already"));
    const std::string base = promise_.text.substr(by_load() ? promise_.text.find('/') + 1 : 0);
    wire::CreateModelT request;
    request.name = name;
    request.base = base;
    request.mode = promise_.a == 0 ? wire::TrainMode::Full : wire::TrainMode::Lora;
    request.lora_rank = static_cast<std::uint32_t>(promise_.a);
    request.seed = by_load() ? 0 : promise_.b;
    reason_ = "the engine of '" + base.substr(0, 80) + "' is being started";
    context_.node.model_service().create(
        tenant_, std::move(request),
        [&context = context_, id = exchange_.id()](const Result<wire::ModelInfoT>& made) {
          if (RetrieveCall* const call = find(context, id)) call->model_made(made.status());
        });
    if (!exchange_.is_answered() && !retries_)
      context_.tinker->hold(exchange_.id(), TinkerState::kPollTime);
  }

  void model_made(const Status& status) {
    if (status.ok() && by_load()) return load();
    if (status.ok())
      return answer_json(exchange_, Json{{"type", "create_model"}, {"model_id", promise_.model}});
    if (status.scope() != Scope::kRetry) return fail(status);
    reason_ = status.text();
    retries_ = true;
    context_.tinker->hold(exchange_.id(), TinkerState::kRetryTime);
  }

  // Number 1 of the stream, unless it was given before.
  void load() {
    const runtime::Model* const model = find_tinker_model(context_, tenant_, promise_.model);
    if (model == nullptr) return fail(error(Code::NOT_FOUND, "the model was unloaded"));
    Status refused;
    if (!context_.node.op_service().knows(model->id, seq())) {
      wire::LoadArgsT args;
      args.target = wire::SaveTarget::Store;
      args.name = promise_.text.substr(0, promise_.text.find('/'));
      args.with_optimizer = promise_.b != 0;
      runtime::SubmitRequest submit;
      submit.tenant = tenant_;
      submit.session = TinkerState::owner(tenant_);
      submit.request_id = context_.tinker->next_request();
      submit.client = "tinker";
      submit.submit.model = model->id.value;
      submit.submit.seq = seq();
      submit.submit.args.Set(std::move(args));
      const auto told = std::make_shared<Status>();
      submit.handler = [told](const runtime::OpOutcome& outcome) { *told = outcome.status; };
      context_.node.op_service().submit(std::move(submit));
      refused = *told;
    }
    if (context_.node.op_service().knows(model->id, seq())) return await_op();
    model_made(refused.ok() ? error(Code::INTERNAL, "the load was not taken") : refused);
  }

  void await_op() {
    const runtime::Model* const model = find_tinker_model(context_, tenant_, promise_.model);
    if (model == nullptr) return fail(error(Code::NOT_FOUND, "the model was unloaded"));
    runtime::OpService& service = context_.node.op_service();
    if (!service.knows(model->id, seq()))
      return fail(error(Code::LOST,
                        "call %llu of the model was not kept: it came before its turn, and plexrld "
                        "was restarted then",
                        static_cast<unsigned long long>(promise_.a)));
    awaits_ = true;
    service.await(model->id, seq(),
                  {exchange_.id(), kOpRequest,
                   [&context = context_, id = exchange_.id()](const runtime::OpOutcome& outcome) {
                     if (RetrieveCall* const call = find(context, id)) call->op_ended(outcome);
                   }});
    if (!exchange_.is_answered()) context_.tinker->hold(exchange_.id(), TinkerState::kPollTime);
  }

  void op_ended(const runtime::OpOutcome& outcome) {
    if (!outcome.status.ok()) return fail(outcome.status);
    Response response;
    const wire::OpValueUnion& value = outcome.reply.value;
    if (const auto* const pass = value.AsForwardBackwardResult()) {
      const bool message = wants_message();
      response.body = message ? forward_backward_message(*pass) : forward_backward_json(*pass);
      if (message) response.content_type = kProtobuf;
    } else if (const auto* const step = value.AsOptimStepResult()) {
      response.body = optim_step_json(*step);
    } else if (const Json document = weights_result(value); !document.is_null()) {
      response.body = dump_json(document);
    } else {
      return fail(error(Code::INVALID_ARGUMENT, "the call of this number was another one"));
    }
    exchange_.answer(std::move(response));
  }

  // Of saves and loads; null for another op than the promise is of.
  [[nodiscard]] Json weights_result(const wire::OpValueUnion& value) const {
    const bool saved = value.AsSaveResult() != nullptr;
    const bool sampler = promise_.kind == Promise::kSaveSampler;
    if (saved && (promise_.kind == Promise::kSaveWeights || sampler))
      return Json{{"type", sampler ? "save_weights_for_sampler" : "save_weights"},
                  {"path", checkpoint_path({promise_.model, sampler, promise_.text})}};
    if (saved && promise_.kind == Promise::kPublish) {
      SamplerId id;
      id.kind = SamplerId::Kind::kVersion;
      id.model = promise_.model;
      id.version = value.AsSaveResult()->version;
      return Json{{"type", "save_weights_for_sampler"},
                  {"path", nullptr},
                  {"sampling_session_id", format_sampler(id)}};
    }
    if (value.AsLoadResult() != nullptr && (by_load() || promise_.kind == Promise::kLoadWeights))
      return Json{{"type", "load_weights"}, {"model_id", promise_.model}};
    return nullptr;
  }

  HttpContext& context_;
  Exchange& exchange_;
  TenantId tenant_;
  Promise promise_;
  std::string id_;
  std::string reason_;
  bool awaits_ = false;   // an op knows of this request
  bool retries_ = false;  // the model could not be made for now
};

}  // namespace

void begin_tinker_retrieve(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto body = parse_body(exchange.request().body);
  if (!body) return answer_refusal(exchange, body.error());
  std::string id;
  BodyFields fields(*body);
  fields.read("request_id", &id);
  auto promise = parse_promise(id);
  if (!promise) return answer_refusal(exchange, promise.error(), 0, "request_id");
  const bool sample = promise->kind == Promise::kSample;
  if (!sample && !is_model_id(tenant, promise->model))
    return answer_unknown(exchange, "promise", id);
  auto call = std::make_unique<RetrieveCall>(context, exchange, tenant, *std::move(promise), id);
  RetrieveCall& begun = *call;
  exchange.set_handler(std::move(call));
  begun.start();
}

}  // namespace plexrl::http
