// SPDX-License-Identifier: Apache-2.0
// JobProcess: one process, held as a pidfd, and the question whether it belongs to a Slurm job. The
// pidfd is opened first and found alive after everything was read from /proc, so what was read was
// of this process and no other, and the signal goes to it whatever becomes of its number.
//
// A process belongs to a job when it runs as the job's user and
// - its control group is one that Slurm made for the job (".../slurm.../job_N/..."), or,
// - where Slurm uses no control groups (proctrack/linuxproc), its ancestors lead to a slurmstepd of
//   root whose title names the job ("slurmstepd: [N.step]"), or,
// - where nothing leads to Slurm any more, as its parents have ended, its environment names the job
//   (SLURM_JOB_ID). A user can write what he likes there, about processes of his own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::reap {

class JobProcess {
 public:
  // NOT_FOUND: it has ended. PERMISSION: not of that user and job, or never to be stopped (pid 1
  // and below, this process, anything of root).
  [[nodiscard]] static Result<JobProcess> open(pid_t pid, std::uint32_t job_id, std::uint32_t uid);

  // NOT_FOUND: it has ended meanwhile.
  [[nodiscard]] Status kill() const;

 private:
  explicit JobProcess(UniqueFd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] bool ended() const;

  UniqueFd fd_;
};

// The job that a text in the form of /proc/PID/cgroup names; 0: none of Slurm's.
[[nodiscard]] std::uint32_t job_of_cgroup(std::string_view text);
// The job that a text in the form of /proc/PID/environ names; 0: none.
[[nodiscard]] std::uint32_t job_of_environment(std::string_view text);
// The job that the title of a slurmstepd names; 0: it is another program.
[[nodiscard]] std::uint32_t job_of_title(std::string_view title);

}  // namespace plexrl::reap
