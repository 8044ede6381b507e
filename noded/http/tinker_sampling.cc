// SPDX-License-Identifier: Apache-2.0
// Sampling sessions of the Tinker API. Nothing is kept of them: what is sampled is in their names.
#include "http/tinker_calls.h"
#include "http/tinker_routes.h"
#include "http/tinker_state.h"

namespace plexrl::http {
namespace {

Result<SamplerId> sampler_of_checkpoint(HttpContext& context, TenantId tenant,
                                        const std::string& path) {
  SamplerId sampler;
  sampler.kind = SamplerId::Kind::kCheckpoint;
  PLEXRL_ASSIGN(const CheckpointName name, parse_checkpoint_path(path));
  sampler.file = checkpoint_file(name);
  const std::uint32_t uid = context.node.tenants().find(tenant)->uid;
  PLEXRL_TRY(context.node.checkpoints().described(uid, sampler.file).status());
  return sampler;
}

Result<SamplerId> sampler_of_base(HttpContext& context, TenantId tenant, const std::string& base) {
  SamplerId sampler;
  const auto& bases = context.node.tenants().find(tenant)->grant.models;
  for (; sampler.base < bases.size(); ++sampler.base)
    if (bases[sampler.base] == base) return sampler;
  return error(Code::NOT_FOUND, "base '%s' is not in this job's grant", base.substr(0, 80).c_str());
}

}  // namespace

void begin_tinker_sampling_session(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto body = parse_body(exchange.request().body);
  if (!body) return answer_refusal(exchange, body.error());
  std::string session, base, path;
  std::uint32_t number = 0;
  BodyFields fields(*body);
  fields.read("session_id", &session);
  fields.read("sampling_session_seq_id", &number, 0, INT32_MAX);
  fields.read("base_model", &base);
  fields.read("model_path", &path);
  if (!fields.status().ok()) return answer_refusal(exchange, fields.status(), 0, fields.field());
  if (!is_session_id(tenant, session)) return answer_unknown(exchange, "session", session);
  auto sampler = path.empty() ? sampler_of_base(context, tenant, base)
                              : sampler_of_checkpoint(context, tenant, path);
  if (!sampler)
    return answer_refusal(exchange, sampler.error(), 0, path.empty() ? "base_model" : "model_path");
  sampler->session = session;
  sampler->number = number;
  answer_json(exchange, Json{{"type", "create_sampling_session"},
                             {"sampling_session_id", format_sampler(*sampler)}});
}

void begin_tinker_sampler(HttpContext& context, Exchange& exchange, TenantId tenant) {
  constexpr std::string_view kHead = "/api/v1/samplers/";
  const std::string id = exchange.request().path.substr(kHead.size());
  const auto sampler = parse_sampler(tenant, id);
  if (!sampler) return answer_unknown(exchange, "sampling session", id);
  const runtime::Tenant& row = *context.node.tenants().find(tenant);
  Json json{{"sampler_id", id}};
  if (sampler->kind == SamplerId::Kind::kBase && sampler->base < row.grant.models.size()) {
    json["base_model"] = row.grant.models[sampler->base];
  } else if (sampler->kind == SamplerId::Kind::kCheckpoint) {
    const auto file = context.node.checkpoints().described(row.uid, sampler->file);
    const auto text = file ? parse_body(file->text) : Result<Json>(file.error());
    if (!text || !text->contains("base")) return answer_unknown(exchange, "sampling session", id);
    json["base_model"] = (*text)["base"];
    json["model_path"] = checkpoint_path(*checkpoint_of_file(sampler->file));
  } else {
    const runtime::Model* const model = find_tinker_model(context, tenant, sampler->model);
    if (model == nullptr) return answer_unknown(exchange, "sampling session", id);
    json["base_model"] = model->base;
  }
  answer_json(exchange, json);
}

void begin_tinker_asample(HttpContext& context, Exchange& exchange, TenantId tenant) {
  std::string field;
  auto sample = parse_sample(exchange.request().body, &field);
  if (!sample) return answer_refusal(exchange, sample.error(), 0, field);
  context.tinker->samples().begin(exchange, tenant, *std::move(sample));
}

}  // namespace plexrl::http
