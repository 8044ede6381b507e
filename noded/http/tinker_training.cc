// SPDX-License-Identifier: Apache-2.0
// Models of the Tinker API and the calls of their training streams. A call's seq_id is the op's
// number, so OpService keeps their order, knows repeated ones and has their results after a
// restart; the answer is a promise that names model and number.
#include "http/tinker_calls.h"
#include "http/tinker_routes.h"
#include "http/tinker_state.h"
#include "http/tinker_train.h"

namespace plexrl::http {
namespace {

struct NewModel {
  std::string session, base;
  std::uint32_t number = 0, rank = 32, seed = 0;
};

// Adapters are of all projections of attention and MLP; a client asks for those of the output
// projection too unless it is told not to, which is taken as "if there are any".
void read_lora(const Json& value, NewModel& model, BodyFields& outer) {
  if (!value.is_object())
    return outer.refuse("lora_config", error(Code::INVALID_ARGUMENT, "an object is needed"));
  BodyFields fields(value);
  bool attention = true, mlp = true;
  fields.read("rank", &model.rank, 0, 4096);
  fields.read("seed", &model.seed, 0, UINT32_MAX);
  fields.read("train_attn", &attention);
  fields.read("train_mlp", &mlp);
  if (!fields.status().ok()) return outer.refuse("lora_config", fields.status());
  if (!attention || !mlp)
    outer.refuse("lora_config",
                 error(Code::UNSUPPORTED, "adapters are of attention and MLP, not of one of them"));
}

NewModel read_new_model(TenantId tenant, BodyFields& fields) {
  NewModel model;
  fields.read("session_id", &model.session);
  if (!is_session_id(tenant, model.session))
    fields.refuse("session_id", error(Code::NOT_FOUND, "this job has no such session"));
  fields.read("model_seq_id", &model.number, 0, kMaxModelNumber);
  if (fields.find("model_seq_id") == nullptr)
    fields.refuse("model_seq_id", error(Code::INVALID_ARGUMENT, "a number is needed"));
  fields.read("base_model", &model.base);
  if (model.base.empty())
    fields.refuse("base_model", error(Code::INVALID_ARGUMENT, "the name of a base is needed"));
  if (const Json* const lora = fields.find("lora_config")) read_lora(*lora, model, fields);
  check_optimizer(fields);
  return model;
}

// The model that the body names; answers by itself when there is none.
runtime::Model* named_model(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto body = parse_body(exchange.request().body);
  if (!body) {
    answer_refusal(exchange, body.error());
    return nullptr;
  }
  std::string id;
  BodyFields fields(*body);
  fields.read("model_id", &id);
  runtime::Model* const model = find_tinker_model(context, tenant, id);
  if (model == nullptr) answer_unknown(exchange, "model", id);
  return model;
}

using Parse = Result<TrainRequest> (*)(std::string_view, std::string*);

void begin_op(HttpContext& context, Exchange& exchange, TenantId tenant, Parse parse,
              Promise::Kind kind) {
  std::string field;
  auto request = parse(exchange.request().body, &field);
  if (!request) return answer_refusal(exchange, request.error(), 0, field);
  submit_training(context, exchange, tenant, *std::move(request), kind);
}

}  // namespace

void answer_promise(Exchange& exchange, const Promise& promise) {
  answer_json(exchange, Json{{"request_id", format_promise(promise)}, {"model_id", promise.model}});
}

runtime::Model* find_tinker_model(HttpContext& context, TenantId tenant, const std::string& id) {
  if (!is_model_id(tenant, id)) return nullptr;
  runtime::Model* model = context.node.models().find(tenant, id);
  if (model == nullptr) model = context.node.models().find(tenant, name_by_load(id));
  return model == nullptr || model->removing ? nullptr : model;
}

std::uint64_t stream_number(const runtime::Model& model, std::uint64_t seq) {
  return is_by_load(model.name) ? seq + 1 : seq;
}

void check_optimizer(BodyFields& fields) {
  const Json* const optimizer = fields.find("optimizer_config");
  if (optimizer == nullptr) return;
  const auto type = optimizer->is_object() ? optimizer->find("type") : optimizer->end();
  const bool adam = optimizer->is_object() && (type == optimizer->end() || *type == "adamw");
  if (adam) return;
  fields.refuse("optimizer_config", error(Code::UNSUPPORTED, "AdamW is the only optimizer here"));
}

void submit_training(HttpContext& context, Exchange& exchange, TenantId tenant,
                     TrainRequest request, Promise::Kind kind, std::string text) {
  const runtime::Model* const model = find_tinker_model(context, tenant, request.model_id);
  if (model == nullptr) return answer_unknown(exchange, "model", request.model_id);
  const ModelId id = model->id;
  request.seq = stream_number(*model, request.seq);
  struct Told {
    Status status;
    std::uint32_t retry_after_ms = 0;
  };
  const auto told = std::make_shared<Told>();
  runtime::SubmitRequest submit;
  submit.tenant = tenant;
  submit.session = TinkerState::owner(tenant);
  submit.request_id = context.tinker->next_request();
  submit.client = "tinker";
  submit.submit.model = id.value;
  submit.submit.seq = request.seq;
  submit.submit.args = std::move(request.args);
  submit.refusal = std::move(request.refusal);
  submit.handler = [told](const runtime::OpOutcome& outcome) {
    *told = {outcome.status, outcome.retry_after_ms};
  };
  runtime::OpService& service = context.node.op_service();
  service.submit(std::move(submit));
  if (!service.knows(id, request.seq))
    return answer_refusal(
        exchange, told->status.ok() ? error(Code::INTERNAL, "the op was not taken") : told->status,
        told->retry_after_ms);
  // A promise outlives plexrld.
  const Promise promise{kind, request.model_id, request.seq, 0, std::move(text)};
  service.when_kept(id, [&context, exchange_id = exchange.id(), promise] {
    Exchange* const waiting = context.server->find(exchange_id);
    if (waiting != nullptr && !waiting->is_answered()) answer_promise(*waiting, promise);
  });
}

// The model is made when its promise is asked for, which says all that is needed for it.
void begin_tinker_create_model(HttpContext&, Exchange& exchange, TenantId tenant) {
  const auto body = parse_body(exchange.request().body);
  if (!body) return answer_refusal(exchange, body.error());
  BodyFields fields(*body);
  const NewModel model = read_new_model(tenant, fields);
  if (!fields.status().ok()) return answer_refusal(exchange, fields.status(), 0, fields.field());
  answer_promise(exchange, {Promise::kCreateModel, make_model_id(model.session, model.number),
                            model.rank, model.seed, model.base});
}

void begin_tinker_get_info(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const runtime::Model* const model = named_model(context, exchange, tenant);
  if (model == nullptr) return;
  answer_json(exchange, Json{{"type", "get_info"},
                             {"model_data", {{"model_name", model->base}}},
                             {"model_id", id_of_name(model->name)},
                             {"is_lora", model->mode == wire::TrainMode::Lora},
                             {"lora_rank", model->lora_rank},
                             {"model_name", model->base}});
}

void begin_tinker_unload(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const runtime::Model* const model = named_model(context, exchange, tenant);
  if (model == nullptr) return;
  const Promise promise{Promise::kUnloadModel, id_of_name(model->name), 0, 0, ""};
  const Status removed = context.node.model_service().remove(tenant, model->id);
  if (!removed.ok()) return answer_refusal(exchange, removed);
  answer_promise(exchange, promise);
}

void begin_tinker_forward_backward(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const bool message = exchange.request().content_type.starts_with(kProtobuf);
  begin_op(context, exchange, tenant,
           message ? parse_forward_backward : parse_json_forward_backward,
           Promise::kForwardBackward);
}

void begin_tinker_forward(HttpContext& context, Exchange& exchange, TenantId tenant) {
  begin_op(context, exchange, tenant, parse_json_forward, Promise::kForwardBackward);
}

void begin_tinker_optim_step(HttpContext& context, Exchange& exchange, TenantId tenant) {
  begin_op(context, exchange, tenant, parse_optim_step, Promise::kOptimStep);
}

}  // namespace plexrl::http
