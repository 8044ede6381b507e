// SPDX-License-Identifier: Apache-2.0
// TaskWatch: the processes of each job, held as pidfds so that a reused pid cannot be mistaken for
// a task. Pids come from AttachTask (root) and from the peers of client connections. Those of
// AttachTask are in the StateStore, with the time when the process started, so that a later plexrld
// watches them again. Loop thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"
#include "base/unique_fd.h"

namespace plexrl::store {
class StateStore;
}

namespace plexrl::runtime {

class TaskWatch {
 public:
  explicit TaskWatch(store::StateStore& store) : store_(store) {}

  static constexpr std::size_t kMaxTasks = 1024;  // of a tenant; fd limits are the reason

  // NOT_FOUND when the process is gone, BUSY when the tenant has kMaxTasks live ones. A pid that is
  // watched already is not added again.
  [[nodiscard]] Status add(TenantId tenant, pid_t pid);
  // add(), and the store keeps it. A store that refuses is logged and no error: a later plexrld
  // then learns of the task when its client connects.
  [[nodiscard]] Status attach(TenantId tenant, pid_t pid);
  // Watches what an earlier plexrld stored, as far as it still lives.
  [[nodiscard]] Status load();
  void forget(TenantId tenant);
  // Drops the dead ones and returns how many live.
  [[nodiscard]] std::size_t live(TenantId tenant);
  // Whether any pid was ever added for it.
  [[nodiscard]] bool known(TenantId tenant) const { return tasks_.count(tenant) != 0; }

 private:
  struct Task {
    pid_t pid = 0;
    UniqueFd fd;
    std::string started;  // of a stored one
  };

  void save(TenantId tenant);
  void restore(TenantId tenant, const std::string& text);

  store::StateStore& store_;
  std::map<TenantId, std::vector<Task>> tasks_;
};

// When the process started, in the kernel's ticks since boot (field 22 of /proc/PID/stat): with the
// pid it names one process of this boot. NOT_FOUND when there is none.
[[nodiscard]] Result<std::uint64_t> start_time(pid_t pid);

}  // namespace plexrl::runtime
