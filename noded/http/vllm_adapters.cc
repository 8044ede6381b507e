// SPDX-License-Identifier: Apache-2.0
// Adapters by name. One is a model of the job that is loaded from a checkpoint of the job's user
// and published; loaded again it publishes anew, and until then the version before is sampled.
// plexrld opens no path that a client gives, so a checkpoint is named by its tinker:// path.
#include "http/adapter_request.h"
#include "http/api_error.h"
#include "http/checkpoint_load.h"
#include "http/completion_gate.h"
#include "http/tinker_ids.h"
#include "http/vllm_calls.h"

namespace plexrl::http {
namespace {

void answer_done(Exchange& exchange, const std::string& name, const char* what) {
  Response response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = "Success: LoRA adapter '" + name + "' " + what + " successfully.";
  exchange.answer(std::move(response));
}

// The adapter has weights that can be sampled.
bool has_weights(HttpContext& context, TenantId tenant, const std::string& name) {
  const runtime::Model* const model = context.node.models().find(tenant, adapter_model(name));
  return model != nullptr && !model->removing && model->latest_version > 0;
}

struct Source {
  std::string file;
  Origin origin;
};

Result<Source> find_source(HttpContext& context, TenantId tenant, const std::string& path) {
  const auto name = parse_checkpoint_path(path);
  if (!name)
    return error(Code::INVALID_ARGUMENT,
                 "the service opens no files of its clients; a checkpoint of yours is needed: "
                 "tinker://MODEL/weights/NAME or tinker://MODEL/sampler_weights/NAME");
  Source source;
  source.file = checkpoint_file(*name);
  const std::uint32_t uid = context.node.tenants().find(tenant)->uid;
  const auto file = context.node.checkpoints().described(uid, source.file);
  if (!file) return error(Code::NOT_FOUND, "there is no such checkpoint");
  PLEXRL_ASSIGN(source.origin, read_origin(*file));
  if (source.origin.mode != wire::TrainMode::Lora)
    return error(Code::UNSUPPORTED, "the checkpoint is of all parameters, not of an adapter");
  return source;
}

// What keeps the name from being loaded; INVALID_ARGUMENT unless it says otherwise.
Status check_name(HttpContext& context, TenantId tenant, const AdapterRequest& request) {
  const runtime::Tenant& row = *context.node.tenants().find(tenant);
  const auto named = find_named(context.node, row, request.name);
  if (named && named->name != adapter_model(request.name))
    return error(Code::EXISTS, "'%s' is a model or a base of this job", request.name.c_str());
  if (has_weights(context, tenant, request.name) && !request.in_place)
    return error(Code::EXISTS, "the LoRA adapter '%s' has already been loaded; see load_inplace",
                 request.name.c_str());
  return {};
}

// One load of a name at a time, so that it is told of its own weights.
Result<std::uint64_t> next_number(HttpContext& context, const runtime::Model& model) {
  const auto flow = context.node.flows().find(model.id);
  if (flow == context.node.flows().end())
    return error(Code::UNAVAILABLE, "the adapter's engine is being started; retry");
  if (flow->second.stream.open() > 0)
    return error(Code::BUSY, "the adapter is being loaded already; retry");
  return flow->second.stream.next_seq();
}

}  // namespace

void begin_load_adapter(HttpContext& context, Exchange& exchange, TenantId tenant) {
  std::string field;
  const auto request = parse_load_adapter(exchange.request().body, &field);
  if (!request) return exchange.answer(error_response(request.error(), 0, field));
  if (const Status status = check_name(context, tenant, *request); !status.ok())
    return exchange.answer(error_response(status, 0, "lora_name"));
  if (!context.gate->has_weights(tenant))
    return exchange.answer(error_response(
        error(Code::INVALID_ARGUMENT, "the job sleeps; /wake_up?tags=weights first")));
  const auto source = find_source(context, tenant, request->path);
  if (!source) return exchange.answer(error_response(source.error(), 0, "lora_path"));
  CheckpointLoad load{adapter_model(request->name), source->file, {}};
  load.seq = [&context](const runtime::Model& model) { return next_number(context, model); };
  load_checkpoint(
      context, tenant, source->origin, std::move(load),
      [&context, tenant, name = request->name, id = exchange.id()](const Result<ModelId>& loaded) {
        if (loaded) (void)context.gate->found(tenant, name);
        Exchange* const waiting = context.server->find(id);
        if (waiting == nullptr || waiting->is_answered()) return;
        if (!loaded) return waiting->answer(error_response(loaded.error()));
        answer_done(*waiting, name, "added");
      });
}

void begin_unload_adapter(HttpContext& context, Exchange& exchange, TenantId tenant) {
  std::string field;
  const auto request = parse_unload_adapter(exchange.request().body, &field);
  if (!request) return exchange.answer(error_response(request.error(), 0, field));
  const runtime::Model* const model =
      context.node.models().find(tenant, adapter_model(request->name));
  const bool there = model != nullptr && !model->removing;
  const bool discarded = context.gate->found(tenant, request->name);
  if (!there && !discarded)
    return exchange.answer(error_response(
        error(Code::NOT_FOUND, "The lora adapter '%s' cannot be found.", request->name.c_str()), 0,
        "lora_name"));
  if (there) {
    const Status removed = context.node.model_service().remove(tenant, model->id);
    if (!removed.ok()) return exchange.answer(error_response(removed));
  }
  answer_done(exchange, request->name, "removed");
}

void begin_weight_info(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto& query = exchange.request().query;
  const auto name = query.find("model");
  const auto named = find_named(context.node, *context.node.tenants().find(tenant),
                                name == query.end() ? "" : name->second);
  if (!named) return exchange.answer(error_response(named.error(), 0, "model"));
  std::uint64_t version = named->version;
  if (named->newest) version = context.node.models().find(tenant, named->name)->latest_version;
  Response response;
  response.body = "{\"weight_version\":\"" + std::to_string(version) + "\"}";
  exchange.answer(std::move(response));
}

std::set<std::string> discard_adapters(HttpContext& context, TenantId tenant) {
  std::set<std::string> names;
  for (const runtime::Model* model : context.node.models().of_tenant(tenant)) {
    const std::string adapter = adapter_of(model->name);
    if (adapter.empty() || model->removing) continue;
    if (context.node.model_service().remove(tenant, model->id).ok()) names.insert(adapter);
  }
  return names;
}

}  // namespace plexrl::http
