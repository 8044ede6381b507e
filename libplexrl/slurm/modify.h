// SPDX-License-Identifier: Apache-2.0
// check_modify: what the job_submit hook decides about a change of a job (`scontrol update`). Pure.
// A job's grant was computed from its request, so a user may not change that request afterwards;
// time limit, name, priority, dependency, comment and the like stay open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "config/site_config.h"

namespace plexrl::slurm {

// The fields that an update sets; empty, false and nullopt mean "left alone".
struct ModifyRequest {
  bool privileged = false;  // root or SlurmUser: may change everything
  std::string partition;
  std::string tres_per_node;
  std::string tres_per_job;
  std::string tres_per_socket;
  std::string tres_per_task;
  bool features = false;
  bool sharing = false;       // OverSubscribe, CoreSpec, ThreadSpec
  bool whole_memory = false;  // MinMemoryNode=0
  std::optional<std::uint32_t> min_nodes;
  std::optional<std::uint32_t> max_nodes;
};

// `pool` is the pool of the job, empty for an ordinary job.
[[nodiscard]] Status check_modify(const ModifyRequest& request, const std::string& pool,
                                  const config::SiteConfig& site);

}  // namespace plexrl::slurm
