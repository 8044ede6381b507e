// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a user and the runs that they are of; sampling from one. Paths say nothing of
// users: a path leads to a file of the caller's own, or nowhere.
//
// To sample from a checkpoint it is loaded into a model of the job, which has no other use. A job
// may have few models, so of these kLoaded are kept; one that is not sampled goes when there is
// need of another, and comes back when it is sampled again.
#include <algorithm>
#include <charconv>
#include <ctime>

#include "http/checkpoint_load.h"
#include "http/tinker_calls.h"
#include "http/tinker_routes.h"
#include "http/tinker_state.h"

namespace plexrl::http {
namespace {

constexpr std::size_t kLoaded = 4;
constexpr std::string_view kRuns = "/api/v1/training_runs/";

using Described = runtime::CheckpointStore::Described;

std::uint32_t uid_of(HttpContext& context, TenantId tenant) {
  return context.node.tenants().find(tenant)->uid;
}

std::string iso_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  char text[32];
  (void)::gmtime_r(&time, &parts);
  (void)std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json checkpoint_json(const Described& file, const CheckpointName& checkpoint) {
  return {{"checkpoint_id", checkpoint_id(checkpoint)},
          {"checkpoint_type", checkpoint.sampler ? "sampler" : "training"},
          {"time", iso_time(file.saved_s)},
          {"tinker_path", checkpoint_path(checkpoint)},
          {"size_bytes", file.bytes},
          {"public", false}};
}

struct Run {
  std::string id, base;
  bool lora = true;
  std::uint32_t rank = 0;
  std::int64_t last_s = 0;
  Json training, sampler;  // the newest checkpoints, or null
};

Json run_json(const Run& run, std::uint32_t uid) {
  Json json{{"training_run_id", run.id},
            {"base_model", run.base},
            {"model_owner", std::to_string(uid)},
            {"is_lora", run.lora},
            {"corrupted", false},
            {"lora_rank", run.rank},
            {"last_request_time", iso_time(run.last_s)}};
  if (!run.training.is_null()) json["last_checkpoint"] = run.training;
  if (!run.sampler.is_null()) json["last_sampler_checkpoint"] = run.sampler;
  return json;
}

// The job's models, and what the user's checkpoints are of; the last used first.
std::vector<Run> runs_of(HttpContext& context, TenantId tenant) {
  std::map<std::string, Run> runs;
  for (const runtime::Model* model : context.node.models().of_tenant(tenant)) {
    const std::string id = id_of_name(model->name);
    if (!is_model_id(tenant, id) || model->removing) continue;
    Run& run = runs[id];
    run = {id,
           model->base,
           model->mode == wire::TrainMode::Lora,
           model->lora_rank,
           static_cast<std::int64_t>(std::time(nullptr)),
           nullptr,
           nullptr};
  }
  for (const Described& file :
       context.node.checkpoints().all_described(uid_of(context, tenant), kCheckpointFiles)) {
    const auto checkpoint = checkpoint_of_file(file.name);
    const auto origin = read_origin(file);
    if (!checkpoint || !origin) continue;
    Run& run = runs[checkpoint->model];
    if (run.id.empty())
      run = {checkpoint->model,
             origin->base,
             origin->mode == wire::TrainMode::Lora,
             origin->rank,
             file.saved_s,
             nullptr,
             nullptr};
    Json& newest = checkpoint->sampler ? run.sampler : run.training;
    if (newest.is_null()) newest = checkpoint_json(file, *checkpoint);
  }
  std::vector<Run> list;
  for (auto& [id, run] : runs) list.push_back(std::move(run));
  std::stable_sort(list.begin(), list.end(),
                   [](const Run& a, const Run& b) { return a.last_s > b.last_s; });
  return list;
}

std::size_t number_of(const Request& request, const char* name, std::size_t otherwise) {
  const auto found = request.query.find(name);
  std::size_t value = otherwise;
  if (found != request.query.end())
    (void)std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

// Of a list what `limit` and `offset` of the query ask for, with the cursor.
Json page(const Request& request, const char* name, std::vector<Json> list, std::size_t limit) {
  limit = number_of(request, "limit", limit);
  const std::size_t offset = number_of(request, "offset", 0);
  const std::size_t total = list.size();
  Json part = Json::array();
  for (std::size_t i = offset; i < total && i - offset < limit; ++i)
    part.push_back(std::move(list[i]));
  return {{name, std::move(part)},
          {"cursor", {{"offset", offset}, {"limit", limit}, {"total_count", total}}}};
}

std::vector<Json> checkpoints_of(HttpContext& context, TenantId tenant, std::string_view run) {
  std::vector<Json> list;
  for (const Described& file :
       context.node.checkpoints().all_described(uid_of(context, tenant), kCheckpointFiles)) {
    const auto checkpoint = checkpoint_of_file(file.name);
    if (checkpoint && (run.empty() || checkpoint->model == run))
      list.push_back(checkpoint_json(file, *checkpoint));
  }
  return list;
}

// ---- models that have a checkpoint's weights ----

bool is_loaded(const runtime::Model& model) {
  return model.name.starts_with("p:") && checkpoint_of_file(model.name.substr(2)).has_value();
}

// BUSY: all that are kept are being sampled.
Status make_room(HttpContext& context, TenantId tenant) {
  std::size_t count = 0;
  const runtime::Model* idle = nullptr;
  for (const runtime::Model* model : context.node.models().of_tenant(tenant)) {
    if (!is_loaded(*model) || model->removing) continue;
    ++count;
    const bool sampled = !context.node.ops().of_model(model->id).empty();
    if (!sampled && (idle == nullptr || model->id < idle->id)) idle = model;
  }
  if (count < kLoaded) return {};
  if (idle == nullptr)
    return error(Code::BUSY, "%zu checkpoints of this job are being sampled already; retry", count);
  return context.node.model_service().remove(tenant, idle->id);
}

// "RUN/checkpoints/weights/NAME" of a path below training_runs.
Result<CheckpointName> checkpoint_of_route(std::string_view path) {
  path.remove_prefix(kRuns.size());
  const std::size_t at = path.find("/checkpoints/");
  const std::string run(path.substr(0, at));
  const std::string rest(at == std::string_view::npos ? "" : path.substr(at + 13));
  return parse_checkpoint_path("tinker://" + run + "/" + rest);
}

}  // namespace

std::string loaded_name(const std::string& file) { return "p:" + file; }

void load_for_sampling(HttpContext& context, TenantId tenant, const std::string& file,
                       std::function<void(const Result<ModelId>&)> done) {
  const runtime::Model* const known = context.node.models().find(tenant, loaded_name(file));
  if (known != nullptr && !known->removing && known->latest_version == kLoadedVersion)
    return done(known->id);
  const auto checkpoint = context.node.checkpoints().described(uid_of(context, tenant), file);
  if (!checkpoint) return done(checkpoint.error());
  const auto origin = read_origin(*checkpoint);
  if (!origin) return done(origin.error());
  const Status room = known == nullptr ? make_room(context, tenant) : Status();
  if (!room.ok()) return done(room);
  CheckpointLoad load{loaded_name(file), file, {}};
  load.seq = [](const runtime::Model&) { return std::uint64_t{1}; };
  load_checkpoint(context, tenant, *origin, std::move(load), std::move(done));
}

void begin_tinker_weights_info(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto body = parse_body(exchange.request().body);
  if (!body) return answer_refusal(exchange, body.error());
  std::string path;
  BodyFields fields(*body);
  fields.read("tinker_path", &path);
  const auto name = parse_checkpoint_path(path);
  if (!name) return answer_refusal(exchange, name.error(), 0, "tinker_path");
  const auto file =
      context.node.checkpoints().described(uid_of(context, tenant), checkpoint_file(*name));
  if (!file) return answer_unknown(exchange, "checkpoint", path);
  const auto origin = read_origin(*file);
  if (!origin) return answer_refusal(exchange, origin.error());
  // A client resumes what is of LoRA only; rank 0 is all parameters.
  answer_json(exchange, Json{{"base_model", origin->base},
                             {"is_lora", true},
                             {"lora_rank", origin->rank},
                             {"train_unembed", true},
                             {"train_mlp", true},
                             {"train_attn", true}});
}

void begin_tinker_runs(HttpContext& context, Exchange& exchange, TenantId tenant) {
  std::vector<Json> list;
  for (const Run& run : runs_of(context, tenant))
    list.push_back(run_json(run, uid_of(context, tenant)));
  answer_json(exchange, page(exchange.request(), "training_runs", std::move(list), 20));
}

// A run, or its checkpoints.
void begin_tinker_run(HttpContext& context, Exchange& exchange, TenantId tenant) {
  constexpr std::string_view kCheckpoints = "/checkpoints";
  std::string id = exchange.request().path.substr(kRuns.size());
  const bool checkpoints = id.ends_with(kCheckpoints);
  if (checkpoints) id.resize(id.size() - kCheckpoints.size());
  if (id.find('/') != std::string::npos) return begin_tinker_not_here(context, exchange, tenant);
  for (const Run& run : runs_of(context, tenant)) {
    if (run.id != id) continue;
    if (!checkpoints) return answer_json(exchange, run_json(run, uid_of(context, tenant)));
    return answer_json(exchange, page(exchange.request(), "checkpoints",
                                      checkpoints_of(context, tenant, id), SIZE_MAX));
  }
  answer_unknown(exchange, "training run", id);
}

void begin_tinker_checkpoints(HttpContext& context, Exchange& exchange, TenantId tenant) {
  answer_json(exchange,
              page(exchange.request(), "checkpoints", checkpoints_of(context, tenant, ""), 100));
}

void begin_tinker_delete(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const std::string& path = exchange.request().path;
  if (path.ends_with("/publish")) return begin_tinker_not_here(context, exchange, tenant);
  const auto name = checkpoint_of_route(path);
  if (!name) return answer_refusal(exchange, name.error());
  const Status removed =
      context.node.checkpoints().remove(uid_of(context, tenant), checkpoint_file(*name));
  if (!removed.ok()) return answer_refusal(exchange, removed);
  Response response;
  response.status = 204;
  exchange.answer(std::move(response));
}

void begin_tinker_not_here(HttpContext&, Exchange& exchange, TenantId) {
  answer_refusal(exchange, error(Code::UNSUPPORTED,
                                 "checkpoints are neither published nor archived here, and have no "
                                 "end that a client sets; plexrl-api(7)"));
}

}  // namespace plexrl::http
