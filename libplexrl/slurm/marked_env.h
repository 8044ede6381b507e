// SPDX-License-Identifier: Apache-2.0
// Marked environment: what PlexRL puts into a job's environment is listed in PLEXRL_MARKED, so that
// a job that is submitted from within a job can lose it again, and a user's own values are never
// touched. Pure functions over "NAME=value" entries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plexrl::slurm {

constexpr const char* kMarker = "PLEXRL_MARKED";
// What Slurm makes of an option's entry in spank_job_env, in the environment of batch scripts and
// of salloc's shell; the name of the option follows, with '_' for '-'.
constexpr const char* kOptionVariable = "SLURM_SPANK__SLURM_SPANK_OPTION_plexrl_";

// The names in the marker's value that PlexRL may have set; others are ignored, the value is
// untrusted.
[[nodiscard]] std::vector<std::string> marked_names(std::string_view marker_value);
// Removes what an outer job left: marked variables, the marker and inherited option variables.
// SLURM_GRES is removed only while it still says "none".
void strip_marked(std::vector<std::string>* environment);
// Removes SLURM_GPUS*: they would make an inner srun ask for GPUs that the job no longer has.
void strip_gpu_variables(std::vector<std::string>* environment);
// SLURM_GRES=none, marked, unless SLURM_GRES is set: a count-only GRES on the job would otherwise
// make parallel steps wait for each other.
void add_step_gres(std::vector<std::string>* environment);

}  // namespace plexrl::slurm
