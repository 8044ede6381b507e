// SPDX-License-Identifier: Apache-2.0
#include "runtime/task_watch.h"

#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

namespace plexrl::runtime {
namespace {

// A pidfd is readable once the process has ended.
bool ended(const UniqueFd& fd) {
  pollfd entry{fd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

Status TaskWatch::add(TenantId tenant, pid_t pid) {
  if (pid <= 0) return error(Code::INVALID_ARGUMENT, "pid %d is not a process", pid);
  const std::size_t count = live(tenant);
  auto& list = tasks_[tenant];
  const bool watched =
      std::any_of(list.begin(), list.end(), [&](const Task& task) { return task.pid == pid; });
  if (watched) return {};
  if (count >= kMaxTasks)
    return error(Code::BUSY, "the job has %zu live tasks on this node, which is the limit", count);
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return errno_error(errno == ESRCH ? Code::NOT_FOUND : Code::IO, errno, "pid %d", pid);
  list.push_back(Task{pid, std::move(fd)});
  return {};
}

std::size_t TaskWatch::live(TenantId tenant) {
  const auto found = tasks_.find(tenant);
  if (found == tasks_.end()) return 0;
  std::erase_if(found->second, [](const Task& task) { return ended(task.fd); });
  return found->second.size();
}

}  // namespace plexrl::runtime
