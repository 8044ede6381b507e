// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_service.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace plexrl::runtime {
namespace {

const char* mode_name(wire::TrainMode mode) {
  switch (mode) {
    case wire::TrainMode::Lora:
      return "lora";
    case wire::TrainMode::Full:
      return "full";
    case wire::TrainMode::None:
      return "none";
  }
  return "unknown";
}

bool contains(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

engine::EngineSpec engine_spec(const config::SiteConfig& config, const config::PoolEntry& pool,
                               const std::string& run_dir, const EngineRow& row) {
  engine::EngineSpec spec;
  spec.id = row.id;
  spec.base_name = row.base;
  if (const auto* entry = config.find_model(row.base)) {
    spec.base_path = entry->path;
    spec.dtype = entry->dtype;
  }
  spec.mode = row.mode;
  spec.threads = config.daemon.engine_threads;
  spec.activation_bytes = pool.activation_memory_mib << 20;
  spec.device = pool.device;
  spec.socket_path = run_dir + "/engines/" + std::to_string(row.id.value) + ".sock";
  return spec;
}

// ---- create ----

void ModelService::create(TenantId tenant_id, wire::CreateModelT request, ModelHandler done) {
  const Tenant* const tenant = parts_.tenants.find(tenant_id);
  PLEXRL_CHECK(tenant != nullptr, "a session's tenant exists");
  if (const Status status = check(*tenant, request); !status.ok()) return done(status);
  if (const Model* const same = parts_.models.find(tenant_id, request.name)) {
    if (same->removing)
      return done(error(Code::BUSY, "model '%s' is being removed", same->name.c_str()));
    const bool agrees = same->base == request.base && same->mode == request.mode &&
                        same->lora_rank == request.lora_rank;
    if (agrees) return done(info(*same));
    return done(error(Code::EXISTS, "model '%s' exists with base %s, mode %s, rank %u",
                      request.name.c_str(), same->base.c_str(), mode_name(same->mode),
                      same->lora_rank));
  }
  if (parts_.models.of_tenant(tenant_id).size() >= kMaxModelsPerTenant)
    return done(error(Code::NO_CAPACITY, "the job has %zu models, which is the limit",
                      kMaxModelsPerTenant));
  auto engine = engine_for(request);
  if (!engine) return done(engine.error());
  Wanted wanted{tenant_id, std::move(request), std::move(done)};
  const EngineRow* const row = parts_.models.engine(*engine);
  const bool usable = parts_.engines.ready(*engine) && (!row->base_model || row->base_known);
  if (usable) return describe(*engine, std::move(wanted));
  wanted_[*engine].push_back(std::move(wanted));
  // The store did not take the description of the base: nothing else asks for it again.
  if (parts_.engines.ready(*engine)) describe_base(*engine);
  const auto view = parts_.engines.view(*engine);
  if (view.failing) engine_failing(*engine, error(Code::ENGINE_DOWN, "%s", view.error.c_str()));
}

// Fills in what the request leaves to the grant.
Status ModelService::check(const Tenant& tenant, wire::CreateModelT& request) const {
  const slurm::Grant& grant = tenant.grant;
  if (request.name.empty() || request.name.size() > 64)
    return error(Code::INVALID_ARGUMENT, "a model's name has 1 to 64 bytes");
  if (request.base.empty() && !grant.models.empty()) request.base = grant.models.front();
  if (!contains(grant.models, request.base))
    return error(Code::PERMISSION, "base '%s' is not in the grant of job %u; see --plexrl-model",
                 request.base.substr(0, 80).c_str(), tenant.job_id);
  if (parts_.config.find_model(request.base) == nullptr)
    return error(Code::NOT_FOUND, "base '%s' is not in this node's registry", request.base.c_str());
  const bool allowed =
      request.mode == wire::TrainMode::None || mode_name(request.mode) == grant.train_mode;
  if (!allowed)
    return error(Code::PERMISSION, "job %u was granted training mode %s, not %s", tenant.job_id,
                 grant.train_mode.c_str(), mode_name(request.mode));
  if (request.mode != wire::TrainMode::Lora) {
    request.lora_rank = 0;
    return {};
  }
  if (request.lora_rank == 0) request.lora_rank = grant.lora_rank;
  if (request.lora_rank == 0 || request.lora_rank > grant.lora_rank)
    return error(Code::PERMISSION, "rank %u: job %u was granted rank %u", request.lora_rank,
                 tenant.job_id, grant.lora_rank);
  return {};
}

Result<EngineId> ModelService::engine_for(const wire::CreateModelT& request) {
  if (request.mode != wire::TrainMode::Full) {
    if (const EngineRow* const row = parts_.models.engine_of_base(request.base)) return row->id;
  }
  const auto mode =
      request.mode == wire::TrainMode::Full ? wire::TrainMode::Full : wire::TrainMode::Lora;
  PLEXRL_ASSIGN(const EngineId id, parts_.models.add_engine(request.base, mode));
  parts_.engines.add(
      engine_spec(parts_.config, parts_.pool, parts_.run_dir, *parts_.models.engine(id)));
  return id;
}

void ModelService::describe(EngineId engine, Wanted wanted) {
  wire::EngineDescribeT request;
  request.mode = wanted.request.mode;
  request.lora_rank = wanted.request.lora_rank;
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  auto shared = std::make_shared<Wanted>(std::move(wanted));
  parts_.engines.call(engine, std::move(body), {},
                      [this, engine, shared](const Result<engine::Reply>& reply) {
                        described(engine, *shared, reply);
                      });
}

void ModelService::described(EngineId engine, const Wanted& wanted,
                             const Result<engine::Reply>& reply) {
  const auto* description = reply ? reply->body.AsEngineDescription() : nullptr;
  if (description == nullptr) {
    release_engine(engine);
    return wanted.done(reply ? error(Code::INTERNAL, "the engine did not describe itself")
                             : reply.error().within("model '" + wanted.request.name + "'"));
  }
  const Tenant* const tenant = parts_.tenants.find(wanted.tenant);
  if (tenant == nullptr || !tenant->open()) {
    release_engine(engine);
    return wanted.done(error(Code::AUTH, "the job has ended"));
  }
  // Asked for twice before the first was there.
  if (const Model* const same = parts_.models.find(wanted.tenant, wanted.request.name)) {
    release_engine(engine);
    return wanted.done(info(*same));
  }
  ModelShape shape = shape_of(*description);
  // On a LoRA engine mode None describes the base, of which a sampling-only model holds nothing
  // itself.
  if (wanted.request.mode == wire::TrainMode::None) shape.segments.clear();
  const auto id = admit(engine, wanted, std::move(shape));
  if (!id) release_engine(engine);
  if (!id) return wanted.done(id.error().within("model '" + wanted.request.name + "'"));
  wanted.done(info(*parts_.models.find(*id)));
}

Result<ModelId> ModelService::admit(EngineId engine, const Wanted& wanted, ModelShape shape) {
  Model model;
  model.tenant = wanted.tenant;
  model.engine = engine;
  model.name = wanted.request.name;
  model.base = wanted.request.base;
  model.mode = wanted.request.mode;
  model.lora_rank = wanted.request.lora_rank;
  model.seed = wanted.request.seed;
  model.shape = std::move(shape);
  PLEXRL_ASSIGN(const ModelId id, parts_.models.add(std::move(model)));
  const Model& added = *parts_.models.find(id);
  Status status = add_known(added);
  if (status.ok())
    status = parts_.dispatcher.admissible(parts_.state.device_bytes(id),
                                          parts_.models.engine(engine)->base_model);
  if (!status.ok()) {
    parts_.state.remove_model(id);
    parts_.models.remove(id);
    return status;
  }
  parts_.flows.emplace(id, ModelFlow(core::OpStream()));
  parts_.dispatcher.model_added(added, parts_.tenants.find(wanted.tenant)->grant);
  return id;
}

// Without room for two copies of the committed segments the model is committed when it is parked.
Status ModelService::add_known(const Model& model) {
  Status status = parts_.state.add_model(model.id, model.tenant, model.shape.segments, false);
  if (status.code() != Code::NO_CAPACITY) return status;
  PLEXRL_TRY(parts_.state.add_model(model.id, model.tenant, model.shape.segments, true));
  PLEXRL_LOG(kInfo, "model %llu: commits when parked only: %s",
             static_cast<unsigned long long>(model.id.value), status.text().c_str());
  return {};
}

// ---- engines ----

void ModelService::engine_up(EngineId engine) {
  const EngineRow* const row = parts_.models.engine(engine);
  if (row->base_model && !row->base_known) return describe_base(engine);
  auto wanted = std::move(wanted_[engine]);
  wanted_.erase(engine);
  for (Wanted& one : wanted) describe(engine, std::move(one));
}

void ModelService::describe_base(EngineId engine) {
  wire::EngineDescribeT request;
  request.mode = wire::TrainMode::None;
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  parts_.engines.call(
      engine, std::move(body), {},
      [this, engine](const Result<engine::Reply>& reply) { base_described(engine, reply); });
}

void ModelService::base_described(EngineId engine, const Result<engine::Reply>& reply) {
  const auto* description = reply ? reply->body.AsEngineDescription() : nullptr;
  if (description == nullptr) {
    const Status why =
        reply ? error(Code::INTERNAL, "the engine did not describe its base") : reply.error();
    return fail_wanted(engine, why);
  }
  EngineRow& row = *parts_.models.engine(engine);
  if (row.base_known) return engine_up(engine);  // asked for twice
  row.base_segments = shape_of(*description).segments;
  Status status = parts_.models.save(row);
  if (status.ok()) status = add_base(row);
  if (!status.ok()) return fail_wanted(engine, status);
  parts_.dispatcher.engine_up(engine);
  engine_up(engine);
}

Status ModelService::add_base(EngineRow& row) {
  PLEXRL_TRY(parts_.state.add_model(row.base_model, TenantId{}, row.base_segments));
  row.base_known = true;
  parts_.dispatcher.base_added(row);
  return {};
}

void ModelService::engine_failing(EngineId engine, const Status& why) {
  fail_wanted(engine,
              error(Code::ENGINE_DOWN, "the engine does not start: %s", why.text().c_str()));
}

void ModelService::fail_wanted(EngineId engine, const Status& why) {
  auto wanted = std::move(wanted_[engine]);
  wanted_.erase(engine);
  for (const Wanted& one : wanted) one.done(why);
  release_engine(engine);
}

// A full-parameter engine goes with its model. One of a base stays for the next tenant.
void ModelService::release_engine(EngineId engine) {
  const EngineRow* const row = parts_.models.engine(engine);
  if (row == nullptr || row->mode != wire::TrainMode::Full) return;
  if (!parts_.models.of_engine(engine).empty() || wanted_.count(engine) != 0) return;
  parts_.engines.stop(engine);
  parts_.models.remove_engine(engine);
}

// ---- remove and restore ----

Status ModelService::remove(TenantId tenant, ModelId id) {
  const Model* const model = parts_.models.find(id);
  if (model == nullptr || model->tenant != tenant || model->removing)
    return error(Code::NOT_FOUND, "this job has no model %llu",
                 static_cast<unsigned long long>(id.value));
  drop(id);
  return {};
}

void ModelService::drop(ModelId model) {
  parts_.models.find(model)->removing = true;
  parts_.service.drop_replays(model);
  parts_.service.drop_ops(model, error(Code::CANCELLED, "the model was removed"));
  parts_.dispatcher.remove_model(model);
}

void ModelService::gone(ModelId id) {
  const Model* const model = parts_.models.find(id);
  if (model == nullptr) return;
  const EngineId engine = model->engine;
  parts_.state.remove_model(id);
  parts_.flows.erase(id);
  parts_.log.forget(id);
  parts_.models.remove(id);
  release_engine(engine);
}

// What a full disk kept from being erased when a job or a model went. An engine's row goes behind
// those of its models, so a model without one was removed, or its creation failed.
void ModelService::remove_left_over() {
  std::vector<ModelId> left;
  for (const auto& [id, model] : parts_.models.all())
    if (parts_.tenants.find(model.tenant) == nullptr || !parts_.models.engine(model.engine) ||
        made_again(model))
      left.push_back(id);
  for (const ModelId id : left) {
    PLEXRL_LOG(kWarning, "model %llu: of a job or an engine that is gone: removed",
               static_cast<unsigned long long>(id.value));
    gone(id);
  }
  std::vector<EngineId> engines;
  for (const auto& [id, row] : parts_.models.engines()) engines.push_back(id);
  for (const EngineId id : engines) release_engine(id);
}

// Its creation failed as far as the job knows, which then made it anew.
bool ModelService::made_again(const Model& model) const {
  const auto mates = parts_.models.of_tenant(model.tenant);
  return std::any_of(mates.begin(), mates.end(), [&](const Model* other) {
    return other->name == model.name && other->id.value > model.id.value;
  });
}

Status ModelService::restore() {
  remove_left_over();
  for (auto& [id, row] : parts_.models.engines())
    if (row.base_model && !row.base_segments.empty()) PLEXRL_TRY(add_base(row));
  std::vector<ModelId> models;
  for (const auto& [id, model] : parts_.models.all()) models.push_back(id);
  for (const ModelId id : models)
    if (parts_.models.find(id) != nullptr)
      PLEXRL_TRY(add_again(id).within("model " + std::to_string(id.value)));
  for (auto& [id, model] : parts_.models.all()) {
    PLEXRL_TRY(parts_.recovery.restore(model));
    parts_.dispatcher.model_added(model, parts_.tenants.find(model.tenant)->grant);
  }
  return {};
}

// One whose creation failed may have a row all the same, and no room. It has done nothing.
Status ModelService::add_again(ModelId id) {
  const Model& model = *parts_.models.find(id);
  Status added = add_known(model);
  if (added.code() == Code::CORRUPT) {
    // Erased by now: it begins anew, and recovery tells the client what it lost.
    PLEXRL_LOG(kError, "%s", added.text().c_str());
    added = add_known(model);
  }
  const auto idle = [this](const Model* one) { return parts_.log.last_known(one->id) == 0; };
  const auto mates = parts_.models.of_tenant(model.tenant);
  auto mate = mates.begin();
  while (added.code() == Code::NO_CAPACITY && mate != mates.end()) {
    const Model* const one = *mate++;
    if (one->id.value > id.value || !idle(one)) continue;
    PLEXRL_LOG(kWarning, "%s: model %llu, which has done nothing, is removed",
               added.to_string().c_str(), static_cast<unsigned long long>(one->id.value));
    const bool last = one == &model;
    gone(one->id);
    if (last) return {};
    added = add_known(model);
  }
  return added;
}

wire::ModelInfoT ModelService::info(const Model& model) const {
  wire::ModelInfoT info;
  info.model = model.id.value;
  info.name = model.name;
  info.base = model.base;
  info.mode = model.mode;
  info.lora_rank = model.lora_rank;
  info.vocab_size = model.shape.vocab_size;
  info.max_positions = model.shape.max_positions;
  info.parameters = model.shape.parameters;
  info.trainable_parameters = model.shape.trainable_parameters;
  info.next_seq = parts_.flows.at(model.id).stream.next_seq();
  info.step = model.position.step;
  info.latest_version = model.latest_version;
  info.tokenizer = model.shape.tokenizer;
  return info;
}

}  // namespace plexrl::runtime
