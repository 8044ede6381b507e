// SPDX-License-Identifier: Apache-2.0
// job_submit_plexrl.so: what slurmctld calls for each submission and each change of a job.
#include "guard.h"
#include "hook.h"

extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const std::uint32_t plugin_version;
const char plugin_name[] = "PlexRL job_submit plugin";
const char plugin_type[] = "job_submit/plexrl";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;  // must equal slurmctld's, micro too

int init() {
  plexrl::job_submit::begin();
  return SLURM_SUCCESS;
}

int job_submit(job_desc_msg_t* description, std::uint32_t submit_uid, char** err_msg) {
  return plexrl::guarded("job_submit", SLURM_ERROR, [&] {
    const plexrl::job_submit::Answer answer = plexrl::job_submit::submit(description, submit_uid);
    if (err_msg == nullptr || answer.text.empty()) return answer.code;
    slurm_xfree(reinterpret_cast<void**>(err_msg));
    *err_msg = slurm_xstrdup(answer.text.c_str());
    return answer.code;
  });
}

// Later releases pass a fourth argument for a text to the user. Which is the first is not tested,
// and ignoring it is safe where it exists; the reason is in slurmctld's log.
int job_modify(job_desc_msg_t* description, job_record* record, std::uint32_t uid) {
  return plexrl::guarded("job_modify", SLURM_ERROR,
                         [&] { return plexrl::job_submit::modify(description, record, uid).code; });
}

}  // extern "C"
