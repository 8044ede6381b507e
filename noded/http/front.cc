// SPDX-License-Identifier: Apache-2.0
#include "http/front.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "api/metrics_text.h"
#include "api/request_router.h"
#include "http/api_error.h"
#include "http/openai_calls.h"
#include "http/route.h"
#include "http/tinker_routes.h"
#include "http/vllm_calls.h"

namespace plexrl::http {
namespace {

constexpr std::array kRoutes{
    Route{"GET", "/health", kNoBody, nullptr, Open::kHealth},
    Route{"GET", "/healthz", kNoBody, nullptr, Open::kHealth},
    Route{"GET", "/metrics", kNoBody, nullptr, Open::kMetrics},
    Route{"GET", "/v1/models", kNoBody, begin_model_list, {}},
    Route{"GET", "/v1/models/*", kNoBody, begin_model_list, {}},
    Route{"POST", "/v1/completions", kTextBody, begin_completion, {}},
    Route{"POST", "/v1/chat/completions", kTextBody, begin_chat, {}},
    Route{"POST", "/tokenize", kTextBody, begin_tokenize, {}},
    Route{"POST", "/detokenize", kTextBody, begin_detokenize, {}},
};

bool has_path(const Route& route, std::string_view path) {
  const std::string_view own = route.path;
  if (!own.ends_with("/*")) return own == path;
  return path.size() >= own.size() && path.starts_with(own.substr(0, own.size() - 1));
}

// HEAD is a GET whose body libmicrohttpd leaves out.
bool has_method(const Route& route, std::string_view method) {
  return method == route.method || (method == "HEAD" && std::string_view(route.method) == "GET");
}

struct Found {
  const Route* route = nullptr;
  std::string allow;  // methods of the path, when this one is none of them
};

Found find_route(const Request& request) {
  Found found;
  const auto look = [&](std::span<const Route> routes) {
    for (const Route& route : routes) {
      if (!has_path(route, request.path)) continue;
      if (has_method(route, request.method)) found.route = &route;
      if (found.route != nullptr) return;
      found.allow += (found.allow.empty() ? "" : ", ") + std::string(route.method);
    }
  };
  look(kRoutes);
  if (found.route == nullptr) look(vllm_routes());
  if (found.route == nullptr) look(tinker_routes());
  return found;
}

}  // namespace

Front::Front(runtime::NodeRuntime& node, const api::Server& sockets, TextCodecs::Post post)
    : sockets_(sockets),
      codecs_(std::move(post)),
      context_{node,     codecs_, nullptr, static_cast<std::int64_t>(std::time(nullptr)),
               &tinker_, &gate_},
      tinker_(context_),
      gate_([this](TenantId tenant) { return discard_adapters(context_, tenant); }) {}

Status Front::connect(HttpServer& server) {
  context_.server = &server;
  PLEXRL_TRY(gate_.connect(server.loop()));
  return tinker_.connect(server.loop());
}

void Front::tenant_closed(TenantId tenant) {
  tinker_.tenant_closed(tenant);
  gate_.tenant_closed(tenant);
}

std::size_t Front::body_limit(const Request& request) const {
  const Found found = find_route(request);
  if (found.route == nullptr) return kNoBody;
  const bool message = request.content_type.starts_with(kProtobuf);
  return message ? std::max(found.route->message_limit, found.route->body_limit)
                 : found.route->body_limit;
}

Response Front::refusal(int status, const std::string& text) const {
  const Code code = status == 413   ? Code::TOO_LARGE
                    : status == 429 ? Code::BUSY
                    : status == 401 ? Code::AUTH
                                    : Code::UNAVAILABLE;
  Response response = error_response(status, code, text);
  if (status == 429 || status == 503) response.retry_after_ms = 1000;
  return response;
}

// A token is accepted from its job's user only, and dies with the incarnation. "tml-" in front of
// it is what Tinker's client insists on.
Result<TenantId> Front::authenticate(const Request& request) const {
  constexpr std::string_view kPrefix = "tml-";
  std::string_view token = request.token;
  if (token.starts_with(kPrefix)) token.remove_prefix(kPrefix.size());
  if (token.empty())
    return error(Code::AUTH,
                 "send the job's token (PLEXRL_TOKEN) as X-API-Key or as "
                 "Authorization: Bearer");
  PLEXRL_ASSIGN(const TenantId tenant,
                context_.node.tenants().authenticate(token, request.peer.uid));
  if (request.by_tcp && context_.node.tenants().find(tenant)->grant.env.empty())
    return error(Code::AUTH,
                 "this job was submitted without --plexrl-env: it is served by http.sock only");
  return tenant;
}

void Front::handle(Exchange& exchange) {
  const Request& request = exchange.request();
  const Found found = find_route(request);
  if (found.route == nullptr) {
    const bool other = !found.allow.empty();
    if (!other) ++unknown_routes_;
    Response response = error_response(other ? 405 : 404, Code::NOT_FOUND,
                                       other ? "this path takes " + found.allow
                                             : "no such path; plexrl-api(7) has those there are");
    response.allow = found.allow;
    return exchange.answer(std::move(response));
  }
  if (found.route->begin == nullptr)
    return found.route->open == Open::kHealth ? health(exchange) : node_metrics(exchange);
  const auto tenant = authenticate(request);
  if (!tenant) return exchange.answer(error_response(tenant.error()));
  exchange.belongs_to(*tenant);
  if (context_.node.dispatcher().draining() && !found.route->while_draining)
    return exchange.answer(
        error_response(error(Code::UNAVAILABLE, "plexrld is going down for a restart; retry")));
  found.route->begin(context_, exchange, *tenant);
}

void Front::health(Exchange& exchange) {
  const bool draining = context_.node.dispatcher().draining();
  Response response;
  response.status = draining ? 503 : 200;
  response.content_type = "text/plain";
  exchange.answer(std::move(response));
}

void Front::node_metrics(Exchange& exchange) {
  const wire::PeerCredentials& peer = exchange.request().peer;
  const api::Viewer viewer{peer.uid,
                           api::is_admin(peer, context_.node.config().daemon.admin_groups)};
  Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = api::metrics_text(context_.node, sockets_.counts(), viewer) + metrics();
  exchange.answer(std::move(response));
}

std::string Front::metrics() const {
  const HttpCounts counts = context_.server->counts();
  std::string text;
  const auto family = [&](const char* name, const char* type, const char* help) {
    text += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  };
  const auto single = [&](const char* name, const char* type, const char* help,
                          std::uint64_t value) {
    family(name, type, help);
    text += std::string(name) + " " + std::to_string(value) + "\n";
  };
  single("plexrl_http_connections", "gauge", "Open HTTP connections.", counts.connections);
  single("plexrl_http_requests", "gauge", "HTTP requests without an answer.", counts.under_way);
  single("plexrl_http_held_requests", "gauge",
         "Completions that wait because their job is paused or asleep.", gate_.held());
  single("plexrl_http_connections_refused_total", "counter", "HTTP connections over a bound.",
         counts.refused);
  single("plexrl_http_unknown_peers_total", "counter",
         "TCP connections whose user is not known, closed.", counts.unknown_peers);
  single("plexrl_http_timeouts_total", "counter", "HTTP connections ended for being slow or idle.",
         counts.late);
  single("plexrl_http_unknown_routes_total", "counter", "Requests for paths that are not there.",
         unknown_routes_);
  family("plexrl_http_answers_total", "counter", "Answers by HTTP status.");
  for (const auto& [status, count] : counts.answers)
    text += "plexrl_http_answers_total{status=\"" + std::to_string(status) + "\"} " +
            std::to_string(count) + "\n";
  return text;
}

}  // namespace plexrl::http
