// SPDX-License-Identifier: Apache-2.0
// Pause and sleep of a job's completions, and what trainers ask beside that.
#include <array>
#include <optional>

#include "http/api_error.h"
#include "http/completion_gate.h"
#include "http/vllm_calls.h"

namespace plexrl::http {
namespace {

constexpr std::array kVllmRoutes{
    Route{"POST", "/v1/load_lora_adapter", kTextBody, begin_load_adapter, {}},
    Route{"POST", "/load_lora_adapter", kTextBody, begin_load_adapter, {}},
    Route{"POST", "/v1/unload_lora_adapter", kTextBody, begin_unload_adapter, {}},
    Route{"POST", "/unload_lora_adapter", kTextBody, begin_unload_adapter, {}},
    Route{"POST", "/pause", kNoBody, begin_pause, {}},
    Route{"POST", "/resume", kNoBody, begin_resume, {}},
    Route{"GET", "/is_paused", kNoBody, begin_is_paused, {}},
    Route{"POST", "/sleep", kNoBody, begin_sleep, {}},
    Route{"POST", "/wake_up", kNoBody, begin_wake_up, {}},
    Route{"GET", "/is_sleeping", kNoBody, begin_is_sleeping, {}},
    Route{"POST", "/reset_prefix_cache", kNoBody, begin_reset_prefix_cache, {}},
    Route{"GET", "/get_world_size", kNoBody, begin_world_size, {}},
    Route{"GET", "/weight_info", kNoBody, begin_weight_info, {}},
};

std::string asked(Exchange& exchange, const char* name) {
  const auto& all = exchange.request().query;
  const auto found = all.find(name);
  return found == all.end() ? "" : found->second;
}

void answer_text(Exchange& exchange, const char* text) {
  Response response;
  response.body = text;
  exchange.answer(std::move(response));
}

void answer_nothing(Exchange& exchange) {
  Response response;
  response.content_type = "text/plain; charset=utf-8";
  exchange.answer(std::move(response));
}

Result<WhatRuns> read_mode(const std::string& text) {
  if (text.empty() || text == "abort") return WhatRuns::kAbort;
  if (text == "wait") return WhatRuns::kWait;
  if (text == "keep") return WhatRuns::kKeep;
  return error(Code::INVALID_ARGUMENT, "'mode': abort, wait or keep is needed");
}

// "weights,kv_cache"; 0 when there are none.
Result<std::uint8_t> read_tags(std::string_view text) {
  std::uint8_t tags = 0;
  while (!text.empty()) {
    const std::size_t end = text.find(',');
    const std::string_view tag = text.substr(0, end);
    if (tag == "weights") {
      tags |= kWeights;
    } else if (tag == "kv_cache") {
      tags |= kKvCache;
    } else {
      return error(Code::INVALID_ARGUMENT, "'tags': weights or kv_cache is needed");
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return tags;
}

// Tags win over the level. What is taken away by its tag is discarded, as at level 2.
Result<CompletionGate::Sleep> read_sleep(const std::string& level, const std::string& tags) {
  PLEXRL_ASSIGN(const std::uint8_t away, read_tags(tags));
  if (away != 0) return CompletionGate::Sleep{away, (away & kWeights) != 0};
  if (level == "0") return CompletionGate::Sleep{0, false};
  if (level.empty() || level == "1") return CompletionGate::Sleep{};
  if (level == "2") return CompletionGate::Sleep{kWeights | kKvCache, true};
  return error(Code::INVALID_ARGUMENT, "'level': 0, 1 or 2 is needed");
}

// A pause or sleep that waits for what runs.
class QuietCall final : public Handler {
 public:
  QuietCall(HttpContext& context, TenantId tenant, SessionId id)
      : context_(context), tenant_(tenant), id_(id) {}
  ~QuietCall() override { context_.gate->forget(tenant_, id_); }

 private:
  HttpContext& context_;
  TenantId tenant_;
  SessionId id_;
};

// `text` "": an empty answer.
CompletionGate::Quiet answer_when_quiet(HttpContext& context, Exchange& exchange, TenantId tenant,
                                        const char* text) {
  exchange.set_handler(std::make_unique<QuietCall>(context, tenant, exchange.id()));
  return [&context, id = exchange.id(), text](const Status& status) {
    Exchange* const waiting = context.server->find(id);
    if (waiting == nullptr || waiting->is_answered()) return;
    if (!status.ok()) return waiting->answer(error_response(status));
    *text == '\0' ? answer_nothing(*waiting) : answer_text(*waiting, text);
  };
}

}  // namespace

std::span<const Route> vllm_routes() { return kVllmRoutes; }

void begin_pause(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto mode = read_mode(asked(exchange, "mode"));
  if (!mode) return exchange.answer(error_response(mode.error(), 0, "mode"));
  context.gate->pause(tenant, *mode, exchange.id(),
                      answer_when_quiet(context, exchange, tenant, R"({"status":"paused"})"));
}

void begin_resume(HttpContext& context, Exchange& exchange, TenantId tenant) {
  context.gate->resume(tenant);
  answer_text(exchange, R"({"status":"resumed"})");
}

void begin_is_paused(HttpContext& context, Exchange& exchange, TenantId tenant) {
  answer_text(exchange,
              context.gate->is_paused(tenant) ? R"({"is_paused":true})" : R"({"is_paused":false})");
}

void begin_sleep(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto mode = read_mode(asked(exchange, "mode"));
  if (!mode) return exchange.answer(error_response(mode.error(), 0, "mode"));
  const auto sleep = read_sleep(asked(exchange, "level"), asked(exchange, "tags"));
  if (!sleep) return exchange.answer(error_response(sleep.error()));
  context.gate->sleep(tenant, *sleep, *mode, exchange.id(),
                      answer_when_quiet(context, exchange, tenant, ""));
}

void begin_wake_up(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const auto tags = read_tags(asked(exchange, "tags"));
  if (!tags) return exchange.answer(error_response(tags.error(), 0, "tags"));
  const std::uint8_t all = kWeights | kKvCache;
  const Status status = context.gate->wake(tenant, *tags == 0 ? all : *tags);
  if (!status.ok()) return exchange.answer(error_response(status));
  answer_nothing(exchange);
}

void begin_is_sleeping(HttpContext& context, Exchange& exchange, TenantId tenant) {
  const bool rests = context.gate->is_asleep(tenant) || context.gate->is_paused(tenant);
  answer_text(exchange, rests ? R"({"is_sleeping":true})" : R"({"is_sleeping":false})");
}

// No prompt's state outlives its request, so there is nothing that could be out of date.
void begin_reset_prefix_cache(HttpContext&, Exchange& exchange, TenantId) {
  answer_nothing(exchange);
}

// One engine process serves a job's base.
void begin_world_size(HttpContext&, Exchange& exchange, TenantId) {
  answer_text(exchange, R"({"world_size":1})");
}

}  // namespace plexrl::http
