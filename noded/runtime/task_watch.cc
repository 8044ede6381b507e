// SPDX-License-Identifier: Apache-2.0
#include "runtime/task_watch.h"

#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "store/state_store.h"

namespace plexrl::runtime {
namespace {

constexpr std::string_view kTable = "tasks";

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
  list.push_back(Task{pid, std::move(fd), {}});
  return {};
}

std::size_t TaskWatch::live(TenantId tenant) {
  const auto found = tasks_.find(tenant);
  if (found == tasks_.end()) return 0;
  bool row_changed = false;
  std::erase_if(found->second, [&](const Task& task) {
    const bool gone = ended(task.fd);
    row_changed = row_changed || (gone && !task.started.empty());
    return gone;
  });
  if (row_changed) save(tenant);
  return found->second.size();
}

Result<std::uint64_t> start_time(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return error(Code::NOT_FOUND, "no process %d", pid);
  // The name in field 2 may hold blanks and brackets; what follows its last bracket is numbers.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string skipped;
  std::uint64_t ticks = 0;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  if (!(fields >> ticks)) return error(Code::IO, "/proc/%d/stat has no start time", pid);
  return ticks;
}

Status TaskWatch::attach(TenantId tenant, pid_t pid) {
  PLEXRL_TRY(add(tenant, pid));
  auto& list = tasks_[tenant];
  const auto task =
      std::find_if(list.begin(), list.end(), [&](const Task& one) { return one.pid == pid; });
  if (!task->started.empty()) return {};
  PLEXRL_ASSIGN(const std::uint64_t started, start_time(pid));
  task->started = std::to_string(started);
  save(tenant);
  return {};
}

// One row per tenant, "pid start" per task.
void TaskWatch::save(TenantId tenant) {
  std::string text;
  for (const Task& task : tasks_[tenant])
    if (!task.started.empty()) text += std::to_string(task.pid) + ' ' + task.started + '\n';
  if (const Status status = store_.put(kTable, tenant.value, 0, text); !status.ok())
    PLEXRL_LOG(kWarning, "%s", status.within("keep the tasks of a job").to_string().c_str());
}

void TaskWatch::restore(TenantId tenant, const std::string& text) {
  (void)tasks_[tenant];  // known, even when nobody lives
  std::istringstream rows(text);
  pid_t pid = 0;
  std::string started;
  while (rows >> pid >> started) {
    // The pidfd first: while it is open, the number cannot come to mean another process.
    if (!add(tenant, pid).ok()) continue;
    const auto now = start_time(pid);
    auto& list = tasks_[tenant];
    if (now && std::to_string(*now) == started) {
      list.back().started = started;
    } else {
      list.pop_back();
    }
  }
}

Status TaskWatch::load() {
  std::map<TenantId, std::string> rows;
  PLEXRL_TRY(store_.scan(kTable, [&](std::uint64_t key, std::uint64_t, std::string_view value) {
    rows[TenantId{key}] = value;
  }));
  for (const auto& [tenant, text] : rows) restore(tenant, text);
  return {};
}

void TaskWatch::forget(TenantId tenant) {
  if (tasks_.erase(tenant) == 0) return;
  if (const Status status = store_.erase(kTable, tenant.value, 0); !status.ok())
    PLEXRL_LOG(kWarning, "%s", status.to_string().c_str());
}

}  // namespace plexrl::runtime
