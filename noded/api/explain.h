// SPDX-License-Identifier: Apache-2.0
// explain: one sentence on why an op is where it is, for waiting clients and `plexrl ops`.
#pragma once

#include <string>

#include "runtime/node_runtime.h"

namespace plexrl::api {

[[nodiscard]] std::string explain(runtime::NodeRuntime& node, const runtime::Op& op);

}  // namespace plexrl::api
