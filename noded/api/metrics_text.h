// SPDX-License-Identifier: Apache-2.0
// metrics_text: the node's metrics in Prometheus text format 0.0.4.
#pragma once

#include <string>

#include "api/documents.h"

namespace plexrl::api {

[[nodiscard]] std::string metrics_text(runtime::NodeRuntime& node, const ServerCounts& server,
                                       const Viewer& viewer);

}  // namespace plexrl::api
