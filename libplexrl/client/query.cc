// SPDX-License-Identifier: Apache-2.0
#include "client/query.h"

#include <array>
#include <utility>

namespace plexrl::client {

std::optional<wire::QueryKind> parse_query_kind(std::string_view name) noexcept {
  using Row = std::pair<std::string_view, wire::QueryKind>;
  static constexpr std::array<Row, 6> kKinds = {{{"status", wire::QueryKind::Status},
                                                 {"jobs", wire::QueryKind::Jobs},
                                                 {"ops", wire::QueryKind::Ops},
                                                 {"report", wire::QueryKind::Report},
                                                 {"metrics", wire::QueryKind::Metrics},
                                                 {"profiles", wire::QueryKind::Profiles}}};
  for (const Row& row : kKinds)
    if (row.first == name) return row.second;
  return std::nullopt;
}

Result<std::string> query(const ConnectTarget& target, wire::QueryKind kind, std::uint32_t job_id,
                          TimePoint deadline) {
  PLEXRL_ASSIGN(RpcClient client, RpcClient::connect(target, deadline));
  wire::QueryT request;
  request.kind = kind;
  request.job_id = job_id;
  PLEXRL_ASSIGN(wire::JsonT reply, client.call<wire::JsonT>(request, deadline));
  return std::move(reply.text);
}

Status administer(const ConnectTarget& target, wire::AdminVerb verb, std::uint32_t job_id,
                  TimePoint deadline) {
  PLEXRL_ASSIGN(RpcClient client, RpcClient::connect(target, deadline));
  wire::AdminT request;
  request.verb = verb;
  request.job_id = job_id;
  return client.call<wire::DoneT>(request, deadline).status();
}

}  // namespace plexrl::client
