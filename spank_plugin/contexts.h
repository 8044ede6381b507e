// SPDX-License-Identifier: Apache-2.0
// What the plugin does in each of Slurm's contexts; dispatch.cc chooses. Each file has its own.
#pragma once

#include "plugin_args.h"
#include "spank_api.h"

namespace plexrl::spank {

// sbatch, salloc and srun, as the user. Whether the options fit together and fit the site is said
// by the job_submit hook: what this side would refuse is let through where the plugin is
// `optional`.
void client_init(spank_context_t context);

// `slurmstepd spank prolog` and `epilog`, as root; once per node and job. They never fail: a
// failure would drain the node.
void job_prolog(spank_t spank, const PluginArgs& args);
void job_epilog(spank_t spank, const PluginArgs& args);

// The forked task in slurmstepd, as root. Ends the process when the job must not run.
void task_init_privileged(spank_t spank, const Result<PluginArgs>& args);

}  // namespace plexrl::spank
