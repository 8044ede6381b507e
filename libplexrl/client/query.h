// SPDX-License-Identifier: Apache-2.0
// One question or administrative command to plexrld, for the command line. No threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "client/rpc_client.h"

namespace plexrl::client {

// "status", "jobs", "ops", "report", "metrics", "profiles".
[[nodiscard]] std::optional<wire::QueryKind> parse_query_kind(std::string_view name) noexcept;

// One JSON document; what is shown depends on the caller's uid. job_id: 0 = all.
[[nodiscard]] Result<std::string> query(const ConnectTarget& target, wire::QueryKind kind,
                                        std::uint32_t job_id, TimePoint deadline);
// PERMISSION unless root or of the admin group.
[[nodiscard]] Status administer(const ConnectTarget& target, wire::AdminVerb verb,
                                std::uint32_t job_id, TimePoint deadline);

}  // namespace plexrl::client
