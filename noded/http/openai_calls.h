// SPDX-License-Identifier: Apache-2.0
// The routes of the OpenAI API and vLLM's two for tokens. Each begins a request that has a token.
// Loop thread only.
#pragma once

#include "http/model_call.h"

namespace plexrl::http {

void begin_completion(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_chat(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_tokenize(HttpContext& context, Exchange& exchange, TenantId tenant);
void begin_detokenize(HttpContext& context, Exchange& exchange, TenantId tenant);
// /v1/models and /v1/models/ID. Bases whose context is not known yet are made for it.
void begin_model_list(HttpContext& context, Exchange& exchange, TenantId tenant);

}  // namespace plexrl::http
