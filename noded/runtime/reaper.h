// SPDX-License-Identifier: Apache-2.0
// Reaper: stops processes of a job. plexrld has no right to do that; the real one asks plexrl-reap,
// which checks for itself that the processes are the job's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace plexrl::runtime {

struct ReapRequest {
  std::uint32_t job_id = 0;
  std::uint32_t uid = 0;
  std::vector<pid_t> pids;
};

class Reaper {
 public:
  virtual ~Reaper() = default;
  // Asks for SIGKILL and does not wait. Whether they are gone is seen at their pidfds; called again
  // until they are. Loop thread.
  [[nodiscard]] virtual Status stop(const ReapRequest& request) = 0;
  // What became of the last request that was sent. OK: each got SIGKILL or had ended. BUSY: no
  // answer yet. PERMISSION: some were refused. UNAVAILABLE: it was not carried out. Loop thread.
  [[nodiscard]] virtual Status last() = 0;
};

}  // namespace plexrl::runtime
