// SPDX-License-Identifier: Apache-2.0
// The calls of vLLM's server that RL trainers make, for the calling job alone: adapters that are
// loaded by name, and pause and sleep of the job's completions (completion_gate.h). Loop thread
// only.
#pragma once

#include <set>
#include <span>
#include <string>

#include "http/route.h"

namespace plexrl::http {

[[nodiscard]] std::span<const Route> vllm_routes();

// vllm_adapters.cc
void begin_load_adapter(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_unload_adapter(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_weight_info(HttpContext& context, Exchange& exchange, TenantId tenant);
// The job's adapters lose their weights. Gives their names.
[[nodiscard]] std::set<std::string> discard_adapters(HttpContext& context, TenantId tenant);

// vllm_rest.cc
void begin_pause(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_resume(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_is_paused(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_sleep(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_wake_up(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_is_sleeping(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_reset_prefix_cache(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_world_size(HttpContext& context, Exchange& exchange, TenantId tenant);

}  // namespace plexrl::http
