// SPDX-License-Identifier: Apache-2.0
// rewrite: what the job_submit hook decides about a submission. A pure function of the request, the
// site configuration and the user: no clock, no I/O, well under a millisecond.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/site_config.h"
#include "slurm/grant.h"
#include "slurm/options.h"
#include "slurm/profile.h"

namespace plexrl::slurm {

// What a submission asks for; empty and nullopt mean "not given".
struct JobRequest {
  std::optional<std::string> options[kOptionCount];  // by Option; text from the user
  std::string name;                                  // of the job
  std::string partition;                             // may be a list "a,b"
  std::string tres_per_node;                         // --gres, --gpus-per-node
  std::string tres_per_job;                          // --gpus
  std::string tres_per_socket;
  std::string tres_per_task;
  bool gpu_hints = false;     // cpus-per-gpu, mem-per-gpu, gpu-bind, gpu-freq, ntasks-per-gpu
  bool exclusive = false;     // --exclusive in any of its forms
  bool core_spec = false;     // --core-spec, --thread-spec: Slurm then takes the node whole
  bool whole_memory = false;  // --mem=0
  bool het_component = false;
  bool has_script = false;   // sbatch; false for srun and salloc
  bool picks_nodes = false;  // names nodes, features or a reservation: Slurm prefers one over all
  std::optional<std::uint32_t> min_cpus;  // of the job, or of its node
  std::optional<std::uint32_t> min_nodes;
  std::optional<std::uint32_t> max_nodes;
  std::vector<std::string> environment;  // batch jobs only
  std::string gres_prefix = "gres:";     // "gres/" since Slurm 23.11

  [[nodiscard]] const std::optional<std::string>& option(Option which) const {
    return options[static_cast<std::size_t>(which)];
  }
};

struct Submitter {
  std::uint32_t uid = 0;
  std::string user;
  std::vector<std::string> groups;
};

// What the job becomes. Without a grant it is no job of a pool, and only `environment` may differ.
struct Rewrite {
  std::optional<Grant> grant;
  std::string partition;
  std::string tres_per_node;
  std::string tres_per_job;
  std::string tres_per_socket;
  std::string tres_per_task;
  bool clear_gpu_hints = false;
  std::vector<std::string> environment;
  std::string prefer;  // a node feature for --prefer; empty: none
  std::string mark;    // for AdminComment: what kind of job it is; empty: not known
  std::string note;    // a sentence for the user: what was learnt from earlier runs; may be empty
};

// INVALID_ARGUMENT, NOT_FOUND, PERMISSION, NO_CAPACITY, UNSUPPORTED: the job is refused; the text
// is one sentence that says what to write instead.
[[nodiscard]] Result<Rewrite> rewrite(const JobRequest& request, const config::SiteConfig& site,
                                      const Submitter& submitter, const Profiles& profiles = {});

}  // namespace plexrl::slurm
