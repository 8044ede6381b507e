// SPDX-License-Identifier: Apache-2.0
// Between Slurm's job description and the plain values of libplexrl/slurm.
#pragma once

#include <string>
#include <vector>

#include "slurm/modify.h"
#include "slurm/rewrite.h"
#include "slurmctld_api.h"

namespace plexrl::job_submit {

[[nodiscard]] slurm::JobRequest read_request(const job_desc_msg_t& description);
// Whether rewrite() has anything to say about it whatever the site file holds.
[[nodiscard]] bool concerns_plexrl(const slurm::JobRequest& request);
// Carries out a rewrite. The fields belong to Slurm's allocator.
void apply(const slurm::Rewrite& rewrite, job_desc_msg_t* description);

[[nodiscard]] slurm::ModifyRequest read_modify(const job_desc_msg_t& description);
// The pool of a job as slurmctld holds it; empty for an ordinary job.
[[nodiscard]] std::string pool_of(const job_desc_msg_t& description);

}  // namespace plexrl::job_submit
