// SPDX-License-Identifier: Apache-2.0
// What a Tinker client asks first: how to behave, which models there are, a session, heartbeats.
#include <sys/random.h>

#include <algorithm>

#include "base/check.h"
#include "http/tinker_ids.h"
#include "http/tinker_routes.h"
#include "http/tinker_state.h"

namespace plexrl::http {
namespace {

// The SDK sends one request per sample. Half of a job's queue leaves room for its training.
std::uint32_t samples_at_once(const config::SiteConfig& config) {
  constexpr std::uint32_t kOfSdk = 2000;
  return std::clamp(config.daemon.max_queued_ops_per_tenant / 2, std::uint32_t{1}, kOfSdk);
}

}  // namespace

// parallel_fwdbwd_chunks: the parts of a call come in their order. Out of order they are taken as
// well, but a part that has come before its turn is not kept over a restart.
// sample_enable_stuck_detection: a job may have to wait for long.
void begin_tinker_config(HttpContext& context, Exchange& exchange, TenantId) {
  answer_json(exchange,
              Json{{"pjwt_auth_enabled", false},
                   {"proto_compress_fwdbwd", false},
                   {"parallel_fwdbwd_chunks", false},
                   {"fwdbwd_max_chunk_bytes_count", 2'000'000},
                   {"sample_enable_stuck_detection", false},
                   {"sample_max_concurrent_requests", samples_at_once(context.node.config())},
                   {"create_model_via_load_weights", false}});
}

void begin_tinker_dynamic_config(HttpContext&, Exchange& exchange, TenantId) {
  answer_json(exchange, Json{{"refresh_interval_sec", 300}});
}

void begin_tinker_health(HttpContext&, Exchange& exchange, TenantId) {
  answer_json(exchange, Json{{"status", "ok"}});
}

void begin_tinker_capabilities(HttpContext& context, Exchange& exchange, TenantId tenant) {
  Json models = Json::array();
  for (const std::string& base : context.node.tenants().find(tenant)->grant.models) {
    Json model{{"model_name", base}};
    // How long a context may be is known once one of the job's models has this base.
    for (const runtime::Model* known : context.node.models().of_tenant(tenant))
      if (known->base == base) model["max_context_length"] = known->shape.max_positions;
    models.push_back(std::move(model));
  }
  answer_json(exchange, Json{{"supported_models", std::move(models)}});
}

// Nothing is kept of a session: its name says that plexrld gave it to this job, and what it leads
// to ends with the job.
void begin_tinker_session(HttpContext&, Exchange& exchange, TenantId tenant) {
  std::uint64_t random = 0;
  PLEXRL_CHECK(getrandom(&random, sizeof random, 0) == sizeof random,
               "getrandom gives 8 bytes at once");
  answer_json(exchange,
              Json{{"type", "create_session"}, {"session_id", make_session_id(tenant, random)}});
}

void begin_tinker_heartbeat(HttpContext&, Exchange& exchange, TenantId tenant) {
  const auto body = parse_body(exchange.request().body);
  if (!body) return answer_refusal(exchange, body.error());
  std::string session;
  BodyFields fields(*body);
  fields.read("session_id", &session);
  if (!is_session_id(tenant, session)) return answer_unknown(exchange, "session", session);
  answer_json(exchange, Json{{"type", "session_heartbeat"}});
}

// Nobody reads it, but a client that gets no answer sends it again every second, for ever.
void begin_tinker_telemetry(HttpContext&, Exchange& exchange, TenantId) {
  answer_json(exchange, Json{{"status", "accepted"}});
}

}  // namespace plexrl::http
