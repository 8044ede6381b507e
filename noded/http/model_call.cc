// SPDX-License-Identifier: Apache-2.0
#include "http/model_call.h"

#include "http/api_error.h"

namespace plexrl::http {
ModelCall::~ModelCall() {
  if (op_request_ > 0) context_.node.op_service().session_closed(exchange_.id());
}

ModelCall* ModelCall::find(HttpContext& context, SessionId id) {
  Exchange* const exchange = context.server->find(id);
  if (exchange == nullptr || exchange->is_answered()) return nullptr;
  return static_cast<ModelCall*>(exchange->handler());
}

void ModelCall::answer(std::string json, const char* content_type) {
  Response response;
  response.content_type = content_type;
  response.body = std::move(json);
  exchange_.answer(std::move(response));
}

void ModelCall::fail(const Status& why, std::uint32_t retry_after_ms, const std::string& field) {
  exchange_.answer(error_response(why, retry_after_ms, field));
}

void ModelCall::find_model(const std::string& name) {
  auto named = find_named(context_.node, *context_.node.tenants().find(tenant_), name);
  if (!named) return fail(named.error(), 0, "model");
  named_ = *std::move(named);
  if (named_.base.empty()) return model_made({});
  wire::CreateModelT request;
  request.name = named_.name;
  request.base = named_.base;
  request.mode = wire::TrainMode::None;
  context_.node.model_service().create(
      tenant_, std::move(request),
      [&context = context_, id = exchange_.id()](const Result<wire::ModelInfoT>& made) {
        if (ModelCall* const call = find(context, id)) call->model_made(made.status());
      });
}

void ModelCall::model_made(const Status& status) {
  if (!status.ok()) return fail(status);
  const runtime::Model* const model = context_.node.models().find(tenant_, named_.name);
  if (model == nullptr) return fail(error(Code::NOT_FOUND, "the model was removed"));
  context_.codecs.get(model->base, model->shape.tokenizer,
                      [&context = context_,
                       id = exchange_.id()](const Result<std::shared_ptr<const TextCodec>>& codec) {
                        if (ModelCall* const call = find(context, id)) call->codec_made(codec);
                      });
}

void ModelCall::codec_made(const Result<std::shared_ptr<const TextCodec>>& codec) {
  if (!codec) return fail(codec.error());
  codec_ = *codec;
  model_ = context_.node.models().find(tenant_, named_.name);
  if (model_ == nullptr) return fail(error(Code::NOT_FOUND, "the model was removed"));
  if (const Status status = pick_version(); !status.ok()) return fail(status);
  ready();
}

Status ModelCall::pick_version() {
  version_ = named_.newest ? model_->latest_version : named_.version;
  const auto flow = context_.node.flows().find(model_->id);
  const bool replaced =
      named_.newest && flow != context_.node.flows().end() && flow->second.replacing();
  if (!replaced && (version_ > 0 || !named_.adapter)) return {};
  if (!replaced)
    return error(Code::NOT_FOUND, "adapter '%s' has no weights; load it again",
                 named_.name.c_str());
  return error(Code::UNAVAILABLE, "model '%s': a new version is being published; retry",
               named_.name.c_str());
}

void ModelCall::submit(wire::OpArgsUnion args) {
  runtime::SubmitRequest request;
  request.tenant = tenant_;
  request.session = exchange_.id();
  request.request_id = ++op_request_;
  request.client = "http";
  request.submit.model = model_->id.value;
  request.submit.args = std::move(args);
  request.handler = [&context = context_, id = exchange_.id(),
                     number = op_request_](const runtime::OpOutcome& outcome) {
    ModelCall* const call = find(context, id);
    if (call != nullptr && call->op_request_ == number) call->op_ended(outcome);
  };
  context_.node.op_service().submit(std::move(request));
}

void ModelCall::take_back() {
  if (op_request_ > 0) context_.node.op_service().cancel(exchange_.id(), op_request_++);
}

void ModelCall::op_ended(const runtime::OpOutcome& outcome) {
  op_over();
  if (!outcome.status.ok()) return fail(outcome.status, outcome.retry_after_ms);
  op_done(outcome.reply);
}

void ModelCall::op_done(const wire::OpReplyT&) {
  fail(error(Code::INTERNAL, "an op that nobody asked for has ended"));
}

}  // namespace plexrl::http
