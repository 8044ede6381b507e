// SPDX-License-Identifier: Apache-2.0
#include "runtime/holder_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "base/log.h"
#include "runtime/task_watch.h"

namespace plexrl::runtime {
namespace {

bool ended(const UniqueFd& fd) {
  pollfd entry{fd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

bool gone(const std::pair<const pid_t, UniqueFd>& entry) { return ended(entry.second); }

Result<std::uint32_t> uid_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("Uid:", 0) == 0)
      return static_cast<std::uint32_t>(std::strtoul(line.c_str() + 4, nullptr, 10));
  return error(Code::NOT_FOUND, "no process %d", pid);
}

// Of one process. NOT_FOUND: it has ended.
Result<std::string> stat_line(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t got = file ? ::read(file.get(), text, sizeof text) : -1;
  if (got > 0) return std::string(text, static_cast<std::size_t>(got));
  const bool ended = got == 0 || errno == ENOENT || errno == ESRCH;
  return errno_error(ended ? Code::NOT_FOUND : Code::IO, errno, "'%s'", path.c_str());
}

// Fields 4 and 5 of /proc/PID/stat; the name in field 2 may hold blanks and brackets.
Status read_stat(pid_t pid, pid_t* parent, pid_t* group) {
  PLEXRL_ASSIGN(const std::string line, stat_line(pid));
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string state;
  if (fields >> state >> *parent >> *group) return {};
  return error(Code::NOT_FOUND, "process %d has ended", pid);
}

Result<std::vector<pid_t>> all_processes() {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return errno_error(Code::IO, errno, "'/proc'");
  while (const dirent* entry = ::readdir(proc.get())) {
    char* end = nullptr;
    const long pid = std::strtol(entry->d_name, &end, 10);
    if (*end == '\0' && pid > 0) pids.push_back(static_cast<pid_t>(pid));
  }
  return pids;
}

}  // namespace

Status HolderProcesses::hold(pid_t pid) {
  if (held_.count(pid) != 0) return {};
  if (held_.size() >= kMaxHeld)
    return error(Code::BUSY, "the lease has %zu processes, which is the limit", kMaxHeld);
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return errno_error(errno == ESRCH ? Code::NOT_FOUND : Code::IO, errno, "pid %d", pid);
  held_.emplace(pid, std::move(fd));
  return {};
}

Status HolderProcesses::add(pid_t pid, std::uint32_t uid, std::uint64_t started) {
  if (pid <= 1) return error(Code::INVALID_ARGUMENT, "pid %d cannot hold a lease", pid);
  if (named_.count(pid) != 0) return {};
  if (named_.size() >= kMaxNamed)
    return error(Code::TOO_LARGE, "more than %zu processes are named for a lease", kMaxNamed);
  // The pidfd first: while it is open, the number cannot come to mean another process.
  const bool known = held_.count(pid) != 0;
  PLEXRL_TRY(hold(pid));
  const auto check = [&]() -> Status {
    PLEXRL_ASSIGN(const std::uint32_t owner, uid_of(pid));
    if (owner != uid) return error(Code::PERMISSION, "process %d is not of uid %u", pid, uid);
    PLEXRL_ASSIGN(const std::uint64_t since, start_time(pid));
    if (started != 0 && since != started) return error(Code::NOT_FOUND, "no process %d", pid);
    named_.emplace(pid, since);
    return {};
  };
  const Status status = check();
  if (!status.ok() && !known) held_.erase(pid);
  pid_t parent = 0;
  pid_t group = 0;
  if (status.ok() && read_stat(pid, &parent, &group).ok() && group == pid) groups_.insert(pid);
  return status;
}

bool HolderProcesses::belongs(const std::map<pid_t, Seen>& seen, pid_t pid) const {
  // Bounded: the table may be inconsistent, as processes come and go while it is read.
  for (std::size_t depth = 0; pid > 1 && depth <= seen.size(); ++depth) {
    const auto row = seen.find(pid);
    if (row == seen.end()) return false;
    if (held_.count(pid) != 0 || groups_.count(row->second.group) != 0) return true;
    pid = row->second.parent;
  }
  return false;
}

void HolderProcesses::refresh() {
  std::erase_if(held_, gone);  // a reused number must not count as a parent
  unheld_ = 0;
  std::map<pid_t, Seen> seen;
  std::set<pid_t> groups;
  const auto all = all_processes();
  if (!all) return blind(all.error());
  for (const pid_t pid : *all) {
    Seen row;
    const Status status = read_stat(pid, &row.parent, &row.group);
    if (status.code() == Code::IO) return blind(status);
    if (!status.ok()) continue;
    groups.insert(row.group);
    seen.emplace(pid, row);
  }
  for (const auto& [pid, row] : seen) {
    if (pid == ::getpid() || !belongs(seen, pid)) continue;
    const Status status = hold(pid);
    if (!status.ok() && status.code() != Code::NOT_FOUND) ++unheld_;
  }
  // A group without members is over; its number may come to mean another one.
  std::erase_if(groups_, [&](pid_t group) { return groups.count(group) == 0; });
}

void HolderProcesses::blind(const Status& why) {
  unheld_ = 1;
  PLEXRL_LOG(kWarning, "the processes of a lease cannot be looked at: %s", why.to_string().c_str());
}

std::size_t HolderProcesses::live() {
  std::erase_if(held_, gone);
  return held_.size() + unheld_;
}

std::vector<pid_t> HolderProcesses::pids() const {
  std::vector<pid_t> list;
  for (const auto& [pid, fd] : held_) list.push_back(pid);
  return list;
}

}  // namespace plexrl::runtime
