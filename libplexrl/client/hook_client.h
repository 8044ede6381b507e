// SPDX-License-Identifier: Apache-2.0
// The calls of the Slurm hooks to plexrld, for use inside slurmd and slurmstepd as uid 0: each
// makes its own connection, has a deadline, starts no thread, throws nothing and leaves nothing
// behind. UNAVAILABLE: nobody listens. TIMEOUT: the deadline passed. PERMISSION: not uid 0.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace plexrl::client {

struct TaskEnvironment {
  std::string socket;         // PLEXRL_SOCKET
  std::string token;          // PLEXRL_TOKEN
  std::string base_url = {};  // PLEXRL_BASE_URL; empty: no HTTP by TCP for this job
};

using EnvPairs = std::vector<std::pair<std::string, std::string>>;
// The variables of a task: PLEXRL_SOCKET and PLEXRL_TOKEN, and with clients (slurm::kEnvClients)
// PLEXRL_BASE_URL and the pair of each. UNAVAILABLE: there are clients, but no HTTP by TCP.
[[nodiscard]] Result<EnvPairs> variables_of(const TaskEnvironment& task,
                                            const std::vector<std::string>& clients);

// job_prolog: opens an incarnation of the job's tenant. Repeating it with the same grant is
// harmless.
[[nodiscard]] Status open_job(const std::string& socket, std::uint32_t job_id, uid_t uid, gid_t gid,
                              const std::string& grant, TimePoint deadline) noexcept;
// task_init_privileged: registers the task and gets what its environment needs. Waits for a service
// that is starting, and for the job to be opened, until the deadline.
[[nodiscard]] Result<TaskEnvironment> attach_task(const std::string& socket, std::uint32_t job_id,
                                                  uid_t uid, pid_t pid,
                                                  TimePoint deadline) noexcept;
// job_epilog: ends the incarnation. A job that is not open is ok.
[[nodiscard]] Status close_job(const std::string& socket, std::uint32_t job_id,
                               TimePoint deadline) noexcept;

}  // namespace plexrl::client
