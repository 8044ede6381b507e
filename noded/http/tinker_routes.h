// SPDX-License-Identifier: Apache-2.0
// The routes of the Tinker API. Each begins a request that has a token. Loop thread only.
#pragma once

#include <span>

#include "http/route.h"

namespace plexrl::http {

[[nodiscard]] std::span<const Route> tinker_routes();

// tinker_session.cc: what a client asks first.
void begin_tinker_config(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_dynamic_config(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_capabilities(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_session(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_heartbeat(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_telemetry(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_health(HttpContext& context, Exchange& exchange, TenantId tenant);

// tinker_training.cc
void begin_tinker_create_model(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_get_info(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_unload(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_forward_backward(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_forward(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_optim_step(HttpContext& context, Exchange& exchange, TenantId tenant);

// tinker_weights.cc
void begin_tinker_save_weights(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_save_for_sampler(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_load_weights(HttpContext& context, Exchange& exchange, TenantId tenant);

// tinker_checkpoints.cc
void begin_tinker_weights_info(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_runs(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_run(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_checkpoints(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_delete(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_not_here(HttpContext& context, Exchange& exchange, TenantId tenant);

// tinker_sampling.cc
void begin_tinker_sampling_session(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_sampler(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tinker_asample(HttpContext& context, Exchange& exchange, TenantId tenant);

// tinker_futures.cc
void begin_tinker_retrieve(HttpContext& context, Exchange& exchange, TenantId tenant);

}  // namespace plexrl::http
