// SPDX-License-Identifier: Apache-2.0
// What slurmctld is told about a submission or a change of a job: the same for the native plugin
// and for the module of a site's job_submit.lua. Runs under slurmctld's locks: no I/O but a stat of
// the site file and of the profiles (read again when they changed) and, for pool jobs, the user's
// groups once a minute. Nothing throws: that would end slurmctld. One thread, which Slurm's lock
// around its plugins sees to.
#pragma once

#include <cstdint>
#include <string>

#include "slurmctld_api.h"

namespace plexrl::job_submit {

struct Answer {
  int code = SLURM_SUCCESS;  // of slurm_errno.h
  std::string text;          // for the user; of an accepted job mostly empty
};

// Reads the site's files, so that mistakes in them are in the log before the first job.
void begin() noexcept;
// Changes the description of an accepted job and leaves that of a refused one alone.
[[nodiscard]] Answer submit(job_desc_msg_t* description, std::uint32_t submit_uid) noexcept;
[[nodiscard]] Answer modify(job_desc_msg_t* description, job_record* record,
                            std::uint32_t uid) noexcept;

}  // namespace plexrl::job_submit
