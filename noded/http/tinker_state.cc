// SPDX-License-Identifier: Apache-2.0
#include "http/tinker_state.h"

#include "http/api_error.h"
#include "http/tinker_train.h"

namespace plexrl::http {
namespace {

// Beside the sessions of requests (from 2^63) and of the frame protocol (from 1).
constexpr std::uint64_t kFirstOwner = std::uint64_t{1} << 62;

}  // namespace

Status TinkerState::connect(loop::EventLoop& loop) {
  PLEXRL_ASSIGN(timer_, loop.make_timer([this] { end_polls(); }));
  return {};
}

void TinkerState::hold(SessionId exchange, Duration time) {
  const TimePoint until = system_clock().now() + time;
  const auto at = polls_.emplace(until.ns, exchange).first;
  if (at == polls_.begin()) timer_.arm(until);
}

void TinkerState::end_polls() {
  const std::int64_t now = system_clock().now().ns;
  while (!polls_.empty() && polls_.begin()->first <= now) {
    Exchange* const exchange = context_.server->find(polls_.begin()->second);
    polls_.erase(polls_.begin());
    if (exchange == nullptr || exchange->is_answered() || exchange->handler() == nullptr) continue;
    static_cast<TinkerPoll*>(exchange->handler())->time_over();
  }
  if (!polls_.empty()) timer_.arm(TimePoint{polls_.begin()->first});
}

SessionId TinkerState::owner(TenantId tenant) { return SessionId{kFirstOwner + tenant.value}; }

void TinkerState::tenant_closed(TenantId tenant) {
  samples_.tenant_closed(tenant);
  context_.node.op_service().session_closed(owner(tenant));
}

// ---- answers ----

void answer_json(Exchange& exchange, const Json& document) {
  Response response;
  response.body = dump_json(document);
  exchange.answer(std::move(response));
}

void answer_refusal(Exchange& exchange, const Status& why, std::uint32_t retry_after_ms,
                    const std::string& field) {
  Response response = error_response(why, retry_after_ms, field);
  Json body{{"detail", why.text()}, {"code", code_name(why.code())}};
  if (!field.empty()) body["field"] = field;
  response.body = dump_json(body);
  exchange.answer(std::move(response));
}

void answer_unknown(Exchange& exchange, const char* what, const std::string& id) {
  answer_refusal(exchange,
                 error(Code::NOT_FOUND, "this job has no %s '%s'", what, id.substr(0, 80).c_str()));
}

}  // namespace plexrl::http
