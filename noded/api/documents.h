// SPDX-License-Identifier: Apache-2.0
// Documents: the JSON answers to queries; doc/service.md has their fields. A Viewer that is not an
// administrator sees its own jobs only. Loop thread only.
#pragma once

#include <string>

#include "api/server.h"
#include "runtime/node_runtime.h"

namespace plexrl::api {

struct Viewer {
  std::uint32_t uid = 0;
  bool admin = false;
  [[nodiscard]] bool sees(const runtime::Tenant& tenant) const {
    return admin || tenant.uid == uid;
  }
};

class Documents {
 public:
  Documents(runtime::NodeRuntime& node, const Server& server) : node_(node), server_(server) {}

  // NOT_FOUND for a report of a job that is not there (or not the viewer's), UNSUPPORTED for a kind
  // that is not known. `more_metrics`: behind the node's own.
  [[nodiscard]] Result<std::string> answer(const wire::QueryT& query, const Viewer& viewer,
                                           const std::string& more_metrics = "");

 private:
  [[nodiscard]] std::string status(const Viewer& viewer);
  [[nodiscard]] std::string jobs(const Viewer& viewer);
  [[nodiscard]] std::string ops(const Viewer& viewer);
  [[nodiscard]] Result<std::string> report(std::uint32_t job_id, const Viewer& viewer);
  [[nodiscard]] std::string metrics(const Viewer& viewer, const std::string& more);
  [[nodiscard]] std::string profiles(const Viewer& viewer);

  runtime::NodeRuntime& node_;
  const Server& server_;
};

}  // namespace plexrl::api
