// SPDX-License-Identifier: Apache-2.0
// `plexrl profiles` and `plexrl profiles export`: what earlier runs of jobs tell, as the node's
// service learnt it, and the file of it that the job_submit hook reads.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "slurm/profile.h"

namespace plexrl::cli {

[[nodiscard]] std::string render_profiles(const nlohmann::json& document);
// Adds the profiles of a service's document. Of jobs that several nodes know, the busiest counts
// and runs are added up. INVALID_ARGUMENT: it is no such document; nothing was added.
[[nodiscard]] Status merge_profiles(const nlohmann::json& document, slurm::Profiles* profiles);

void add_profiles(CLI::App& app, Run& chosen);

}  // namespace plexrl::cli
