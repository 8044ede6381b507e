// SPDX-License-Identifier: Apache-2.0
// How a command finds and asks the node's service. The socket is, in this order: --socket,
// $PLEXRL_SOCKET (inside a job), run_dir of the site configuration.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "client/query.h"

namespace plexrl::cli {

struct ServiceTarget {
  std::string socket;
  double timeout_s = 10.0;

  [[nodiscard]] std::string socket_path() const;
  [[nodiscard]] client::ConnectTarget connect_target() const;
  [[nodiscard]] TimePoint deadline() const;
};

void add_service_options(CLI::App& command, ServiceTarget& target);

// The daemon's document. PROTOCOL when it is not a JSON object.
[[nodiscard]] Result<nlohmann::json> ask(const ServiceTarget& target, wire::QueryKind kind,
                                         std::uint32_t job_id = 0);

}  // namespace plexrl::cli
