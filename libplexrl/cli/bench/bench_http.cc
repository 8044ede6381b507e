// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_http.h"

#include <algorithm>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/http_link.h"

namespace plexrl::cli {
namespace {

constexpr Duration kConnectTime{10 * kSecond.ns};
constexpr std::uint32_t kMaxClients = 1000;

struct Place {
  const client::ConnectTarget& target;
  const std::string& socket;
  std::uint64_t model;
};

Result<LoadResult> load_http(const Place& place, const HttpRequest& request, std::uint32_t clients,
                             Duration length) {
  const TimePoint deadline = system_clock().now() + kConnectTime;
  std::vector<std::unique_ptr<LoadLink>> links;
  for (std::uint32_t i = 0; i < clients; ++i) {
    PLEXRL_ASSIGN(auto link, connect_http_link(place.socket, request, deadline));
    links.push_back(std::move(link));
  }
  PLEXRL_ASSIGN(OpLoad load, OpLoad::create(std::move(links)));
  return load.closed(1, length);
}

Result<LoadResult> load_op(const Place& place, std::uint32_t clients, Duration length) {
  PLEXRL_ASSIGN(OpLoad load, OpLoad::connect(place.target, clients, place.model,
                                             system_clock().now() + kConnectTime));
  return load.closed(1, length);
}

nlohmann::json row(const HttpRequest& request, std::uint32_t clients, const LoadResult& result,
                   const BenchHttpOptions& options) {
  return {{"bench", "http"},
          {"route", request.path},
          {"clients", clients},
          {"repeats", options.repeats},
          {"seconds", options.seconds},
          {"p50_us", result.p50_us},
          {"p99_us", result.p99_us},
          {"requests_per_s", result.ops_per_s}};
}

// In turns, so that other load on the machine hits both.
Result<nlohmann::json> completions(const Place& place, const HttpRequest& request,
                                   std::uint32_t clients, const BenchHttpOptions& options) {
  const Duration length{static_cast<std::int64_t>(options.seconds * 1e9)};
  std::vector<LoadResult> http, op;
  std::vector<double> more_p50, more_p99;
  for (std::uint32_t i = 0; i < options.repeats; ++i) {
    PLEXRL_ASSIGN(const LoadResult by_http, load_http(place, request, clients, length));
    PLEXRL_ASSIGN(const LoadResult by_op, load_op(place, clients, length));
    http.push_back(by_http);
    op.push_back(by_op);
    more_p50.push_back(by_http.p50_us - by_op.p50_us);
    more_p99.push_back(by_http.p99_us - by_op.p99_us);
  }
  nlohmann::json json = row(request, clients, median_of(http), options);
  json["op_p50_us"] = median_of(op).p50_us;
  json["op_p99_us"] = median_of(op).p99_us;
  json["overhead_p50_us"] = percentile(more_p50, 50);
  json["overhead_p99_us"] = percentile(more_p99, 50);
  return json;
}

Result<nlohmann::json> without_op(const Place& place, const HttpRequest& request,
                                  std::uint32_t clients, const BenchHttpOptions& options) {
  const Duration length{static_cast<std::int64_t>(options.seconds * 1e9)};
  std::vector<LoadResult> results;
  for (std::uint32_t i = 0; i < options.repeats; ++i) {
    PLEXRL_ASSIGN(const LoadResult result, load_http(place, request, clients, length));
    results.push_back(result);
  }
  return row(request, clients, median_of(results), options);
}

Status check(const BenchHttpOptions& o) {
  const bool clients =
      !o.clients.empty() && std::all_of(o.clients.begin(), o.clients.end(),
                                        [](auto n) { return n >= 1 && n <= kMaxClients; });
  if (clients && o.repeats > 0 && o.seconds > 0 && o.seconds <= 3600) return {};
  return error(Code::INVALID_ARGUMENT,
               "bench http: clients 1..%u, repeats and seconds above 0, seconds to 3600",
               kMaxClients);
}

}  // namespace

Result<nlohmann::json> measure_http(const client::ConnectTarget& target, const std::string& socket,
                                    std::uint64_t model, const std::string& model_name,
                                    const BenchHttpOptions& options) {
  PLEXRL_TRY(check(options));
  const Place place{target, socket, model};
  const nlohmann::json body = {{"model", model_name}, {"prompt", {1}}, {"max_tokens", 1}};
  const HttpRequest completion{"POST", "/v1/completions", target.token, body.dump()};
  const HttpRequest health{"GET", "/health", "", ""};
  nlohmann::json rows = nlohmann::json::array();
  for (const std::uint32_t clients : options.clients) {
    PLEXRL_ASSIGN(nlohmann::json with_op, completions(place, completion, clients, options));
    rows.push_back(std::move(with_op));
    PLEXRL_ASSIGN(nlohmann::json alone, without_op(place, health, clients, options));
    rows.push_back(std::move(alone));
  }
  return rows;
}

Result<nlohmann::json> bench_http(const BenchHttpOptions& options) {
  PLEXRL_TRY(check(options));
  std::string program = options.plexrld;
  if (program.empty()) {
    PLEXRL_ASSIGN(program, find_plexrld());
  }
  PLEXRL_ASSIGN(const BenchDaemon daemon, BenchDaemon::start(program));
  return measure_http(daemon.target(), daemon.directory() + "/run/http.sock", daemon.model(),
                      BenchDaemon::kModelName, options);
}

}  // namespace plexrl::cli
