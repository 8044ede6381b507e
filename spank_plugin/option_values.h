// SPDX-License-Identifier: Apache-2.0
// The --plexrl-* options of this process: registration with Slurm, check of each value, and what
// the command line gave. One thread, as Slurm calls hooks.
#pragma once

#include <optional>
#include <string>

#include "slurm/options.h"
#include "spank_api.h"

namespace plexrl::spank {

// In slurm_spank_init of every context but slurmd.
void register_options(spank_t spank);
// What the option callback saw; nullopt when not given.
[[nodiscard]] const std::optional<std::string>& option_value(slurm::Option option);
// In job_prolog and job_epilog: the text of --plexrl-pool in the job's own record.
[[nodiscard]] std::optional<std::string> job_pool_text(spank_t spank);

}  // namespace plexrl::spank
