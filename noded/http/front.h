// SPDX-License-Identifier: Apache-2.0
// Front: what plexrld answers on HTTP. A table of routes; who may use which; the error objects.
// man/plexrl-api.7 describes the routes, doc/http.md how they work. Loop thread only.
#pragma once

#include <string>

#include "api/documents.h"
#include "http/completion_gate.h"
#include "http/model_call.h"
#include "http/tinker_state.h"

namespace plexrl::http {

class Front final : public Application {
 public:
  // `sockets`: for the documents. Both outlive the front.
  Front(runtime::NodeRuntime& node, const api::Server& sockets, TextCodecs::Post post);
  // Before the first request; they know each other.
  [[nodiscard]] Status connect(HttpServer& server);

  [[nodiscard]] std::size_t body_limit(const Request& request) const override;
  void handle(Exchange& exchange) override;
  [[nodiscard]] Response refusal(int status, const std::string& text) const override;
  void tenant_closed(TenantId tenant) override;
  [[nodiscard]] TinkerState& tinker() { return tinker_; }
  // Families of this server in Prometheus' text format.
  [[nodiscard]] std::string metrics() const;

 private:
  [[nodiscard]] Result<TenantId> authenticate(const Request& request) const;
  void health(Exchange& exchange);
  void node_metrics(Exchange& exchange);

  const api::Server& sockets_;
  TextCodecs codecs_;
  HttpContext context_;
  TinkerState tinker_;
  CompletionGate gate_;
  std::uint64_t unknown_routes_ = 0;
};

}  // namespace plexrl::http
