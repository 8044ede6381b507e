// SPDX-License-Identifier: Apache-2.0
// Saves and loads of a Tinker training stream. A checkpoint with a name is a file of the user's in
// the service's store, with the optimizer, whichever of the two saves made it: it outlives the job
// and plexrld. Without a name save_weights_for_sampler publishes the weights as a version.
#include "http/checkpoint_load.h"
#include "http/tinker_calls.h"
#include "http/tinker_routes.h"
#include "http/tinker_state.h"
#include "runtime/op_check.h"

namespace plexrl::http {
namespace {

struct Save {
  TrainRequest request;
  std::string name;
  bool overwrite = false;
  bool publish = false;
};

Result<Save> parse_save(std::string_view text, bool for_sampler, std::string* field) {
  PLEXRL_ASSIGN(const Json body, parse_body(text));
  BodyFields fields(body);
  Save save;
  read_stream_fields(fields, save.request);
  if (!fields.status().ok()) {
    *field = fields.field();
    return fields.status();
  }
  std::string kind = "snapshot";
  fields.read("path", &save.name);
  fields.read("overwrite", &save.overwrite);
  fields.read("kind", &kind);
  save.publish = for_sampler && save.name.empty();
  if (kind != "snapshot") fields.refuse("kind", error(Code::UNSUPPORTED, "'snapshot' is possible"));
  if (save.name.empty()) save.name = "step-" + std::to_string(save.request.seq);
  if (const Status good = check_checkpoint_name(save.name); !good.ok()) fields.refuse("path", good);
  save.request.refusal = fields.status();
  return save;
}

// What the store does not know of a checkpoint: what to make its model of.
std::string description(const runtime::Model& model) {
  return dump_json(Json{{"base", model.base},
                        {"mode", model.mode == wire::TrainMode::Full ? "full" : "lora"},
                        {"rank", model.lora_rank}});
}

// A clash of names is the client's mistake and uses the number up; a repeated call is no clash.
Status prepare(HttpContext& context, const runtime::Tenant& tenant, const runtime::Model& model,
               const std::string& file, bool overwrite) {
  runtime::CheckpointStore& store = context.node.checkpoints();
  if (!overwrite && store.described(tenant.uid, file).has_value())
    return error(Code::EXISTS, "there is a checkpoint of this name already; see 'overwrite'");
  if (runtime::Model* const sampler = context.node.models().find(tenant.id, loaded_name(file)))
    (void)context.node.model_service().remove(tenant.id, sampler->id);
  return store.describe(tenant.uid, file, description(model));
}

void begin_save(HttpContext& context, Exchange& exchange, TenantId tenant, bool for_sampler) {
  std::string field;
  auto save = parse_save(exchange.request().body, for_sampler, &field);
  if (!save) return answer_refusal(exchange, save.error(), 0, field);
  TrainRequest& request = save->request;
  const runtime::Model* const model = find_tinker_model(context, tenant, request.model_id);
  if (model == nullptr) return answer_unknown(exchange, "model", request.model_id);
  wire::SaveArgsT args;
  args.target = save->publish ? wire::SaveTarget::Sampler : wire::SaveTarget::Store;
  if (!save->publish && request.refusal.ok()) {
    args.name = checkpoint_file({request.model_id, for_sampler, save->name});
    if (!context.node.op_service().knows(model->id, stream_number(*model, request.seq)))
      request.refusal = prepare(context, *context.node.tenants().find(tenant), *model, args.name,
                                save->overwrite);
  }
  request.args.Set(std::move(args));
  const Promise::Kind kind = save->publish ? Promise::kPublish
                             : for_sampler ? Promise::kSaveSampler
                                           : Promise::kSaveWeights;
  submit_training(context, exchange, tenant, std::move(request), kind,
                  save->publish ? "" : save->name);
}

void refuse_access_token(BodyFields& fields) {
  if (fields.find("weights_access_token") == nullptr) return;
  fields.refuse("weights_access_token",
                error(Code::UNSUPPORTED, "checkpoints are their user's only"));
}

// The model is made, and loads, when its promise is asked for.
void begin_create_by_load(HttpContext& context, Exchange& exchange, TenantId tenant,
                          BodyFields& fields) {
  std::string session, path, base;
  std::uint32_t number = 0;
  bool optimizer = false;
  fields.read("session_id", &session);
  if (!is_session_id(tenant, session)) return answer_unknown(exchange, "session", session);
  fields.read("model_seq_id", &number, 0, kMaxModelNumber);
  if (fields.find("model_seq_id") == nullptr)
    fields.refuse("model_seq_id", error(Code::INVALID_ARGUMENT, "a number is needed"));
  fields.read("path", &path);
  fields.read("optimizer", &optimizer);
  fields.read("base_model", &base);
  check_optimizer(fields);
  refuse_access_token(fields);
  const auto checkpoint = parse_checkpoint_path(path);
  if (!checkpoint) fields.refuse("path", checkpoint.error());
  if (!fields.status().ok()) return answer_refusal(exchange, fields.status(), 0, fields.field());
  const std::string file = checkpoint_file(*checkpoint);
  const auto described =
      context.node.checkpoints().described(context.node.tenants().find(tenant)->uid, file);
  if (!described) return answer_unknown(exchange, "checkpoint", path);
  const auto origin = read_origin(*described);
  if (!origin) return answer_refusal(exchange, origin.error());
  if (!base.empty() && base != origin->base)
    return answer_refusal(
        exchange,
        error(Code::UNSUPPORTED, "'base_model': the checkpoint is of '%s'", origin->base.c_str()),
        0, "base_model");
  answer_promise(exchange, {Promise::kCreateByLoad, make_model_id(session, number), origin->rank,
                            optimizer ? 1U : 0U, file + "/" + origin->base});
}

}  // namespace

void begin_tinker_save_weights(HttpContext& context, Exchange& exchange, TenantId tenant) {
  begin_save(context, exchange, tenant, false);
}

void begin_tinker_save_for_sampler(HttpContext& context, Exchange& exchange, TenantId tenant) {
  begin_save(context, exchange, tenant, true);
}

void begin_tinker_load_weights(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto body = parse_body(exchange.request().body);
  if (!body) return answer_refusal(exchange, body.error());
  BodyFields fields(*body);
  if (fields.find("session_id") != nullptr)
    return begin_create_by_load(context, exchange, tenant, fields);
  TrainRequest request;
  read_stream_fields(fields, request);
  if (!fields.status().ok()) return answer_refusal(exchange, fields.status(), 0, fields.field());
  std::string path;
  wire::LoadArgsT args;
  args.target = wire::SaveTarget::Store;
  args.with_optimizer = false;
  fields.read("path", &path);
  fields.read("optimizer", &args.with_optimizer);
  refuse_access_token(fields);
  const auto checkpoint = parse_checkpoint_path(path);
  if (!checkpoint) fields.refuse("path", checkpoint.error());
  if (checkpoint) args.name = checkpoint_file(*checkpoint);
  request.refusal = fields.status();
  request.args.Set(std::move(args));
  submit_training(context, exchange, tenant, std::move(request), Promise::kLoadWeights);
}

}  // namespace plexrl::http
