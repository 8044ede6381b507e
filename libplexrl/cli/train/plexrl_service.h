// SPDX-License-Identifier: Apache-2.0
// PlexrlService: the Service over libplexrl, for the job that PLEXRL_SOCKET and PLEXRL_TOKEN name.
#pragma once

#include <memory>

#include "cli/train/service.h"

namespace plexrl::cli {

// Connects and creates the model, or attaches to it when the job has it already.
[[nodiscard]] Result<std::unique_ptr<Service>> connect_service(const TrainOptions& options);

}  // namespace plexrl::cli
