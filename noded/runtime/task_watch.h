// SPDX-License-Identifier: Apache-2.0
// TaskWatch: the processes of each job, held as pidfds so that a reused pid cannot be mistaken for
// a task. Pids come from AttachTask (root) and from the peers of client connections. Loop thread
// only.
#pragma once

#include <sys/types.h>

#include <map>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"
#include "base/unique_fd.h"

namespace plexrl::runtime {

class TaskWatch {
 public:
  static constexpr std::size_t kMaxTasks = 1024;  // of a tenant; fd limits are the reason

  // NOT_FOUND when the process is gone, BUSY when the tenant has kMaxTasks live ones. A pid that is
  // watched already is not added again.
  [[nodiscard]] Status add(TenantId tenant, pid_t pid);
  void forget(TenantId tenant) { tasks_.erase(tenant); }
  // Drops the dead ones and returns how many live.
  [[nodiscard]] std::size_t live(TenantId tenant);
  // Whether any pid was ever added for it.
  [[nodiscard]] bool known(TenantId tenant) const { return tasks_.count(tenant) != 0; }

 private:
  struct Task {
    pid_t pid = 0;
    UniqueFd fd;
  };
  std::map<TenantId, std::vector<Task>> tasks_;
};

}  // namespace plexrl::runtime
