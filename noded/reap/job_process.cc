// SPDX-License-Identifier: Apache-2.0
#include "reap/job_process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace plexrl::reap {
namespace {

constexpr std::size_t kMaxDepth = 256;  // of ancestors
// A cgroup file has a dozen lines, a title is one; more of a hostile one is not read.
constexpr std::size_t kMaxText = 64U << 10;
// An environment may be large; Slurm's variables are anywhere in it.
constexpr std::size_t kMaxEnvironment = 2U << 20;
// The parents of a process that are read while some of them end are read again.
constexpr int kTries = 3;

std::string read_proc(pid_t pid, const char* name, std::size_t limit = kMaxText) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name, std::ios::binary);
  std::string text(limit, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Real and effective: a process that is root in either way is not a user's to lose.
bool runs_as(pid_t pid, std::uint32_t uid) {
  std::istringstream lines(read_proc(pid, "status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("Uid:", 0) != 0) continue;
    std::istringstream fields(line.substr(4));
    std::uint32_t real = 0;
    std::uint32_t effective = 0;
    return static_cast<bool>(fields >> real >> effective) && real == uid && effective == uid;
  }
  return false;
}

pid_t parent_of(pid_t pid) {
  const std::string stat = read_proc(pid, "stat");
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string state;
  pid_t parent = 0;
  return fields >> state >> parent ? parent : 0;
}

std::vector<pid_t> ancestors_of(pid_t pid) {
  std::vector<pid_t> chain;
  while (chain.size() < kMaxDepth && (pid = parent_of(pid)) > 1) chain.push_back(pid);
  return chain;
}

// Nobody but root can be a slurmstepd of root, so a title cannot be forged. 0: none of them is one;
// nothing: they change too fast to say.
std::optional<std::uint32_t> job_of_ancestors(pid_t pid) {
  for (int i = 0; i < kTries; ++i) {
    const std::vector<pid_t> chain = ancestors_of(pid);
    std::uint32_t job = 0;
    for (const pid_t ancestor : chain) {
      if (!runs_as(ancestor, 0)) continue;
      job = job_of_title(read_proc(ancestor, "cmdline"));
      if (job != 0) break;
    }
    // Read again: a link that ended meanwhile may have lent its number to somebody else.
    if (ancestors_of(pid) == chain) return job;
  }
  return std::nullopt;
}

// By Slurm's word as long as there is any.
std::optional<std::uint32_t> job_of(pid_t pid) {
  if (const std::uint32_t job = job_of_cgroup(read_proc(pid, "cgroup")); job != 0) return job;
  const auto job = job_of_ancestors(pid);
  if (!job || *job != 0) return job;
  return job_of_environment(read_proc(pid, "environ", kMaxEnvironment));
}

std::uint32_t number_at(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size() || *end == '/' || *end == '.';
  return failed == std::errc() && whole ? value : 0;
}

}  // namespace

std::uint32_t job_of_cgroup(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t slurm = line.find("slurm");
    const std::size_t job = line.find("/job_", slurm);
    if (slurm == std::string_view::npos || job == std::string_view::npos) continue;
    if (const std::uint32_t number = number_at(line.substr(job + 5)); number != 0) return number;
  }
  return 0;
}

std::uint32_t job_of_environment(std::string_view text) {
  constexpr std::string_view kBegin = "SLURM_JOB_ID=";
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    if (entry.substr(0, kBegin.size()) != kBegin) continue;
    const std::string_view number = entry.substr(kBegin.size());
    return number.find_first_not_of("0123456789") == std::string_view::npos ? number_at(number) : 0;
  }
  return 0;
}

std::uint32_t job_of_title(std::string_view title) {
  constexpr std::string_view kBegin = "slurmstepd: [";
  return title.substr(0, kBegin.size()) == kBegin ? number_at(title.substr(kBegin.size())) : 0;
}

bool JobProcess::ended() const {
  pollfd entry{fd_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) != 0;
}

Result<JobProcess> JobProcess::open(pid_t pid, std::uint32_t job_id, std::uint32_t uid) {
  if (pid <= 1 || pid == ::getpid() || uid == 0 || job_id == 0)
    return error(Code::PERMISSION, "pid %d of job %u, uid %u: never", pid, job_id, uid);
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd && errno == ESRCH) return error(Code::NOT_FOUND, "pid %d has ended", pid);
  // EINVAL: a thread, not a process.
  if (!fd) return errno_error(Code::PERMISSION, errno, "pid %d", pid);
  JobProcess process(std::move(fd));
  const bool of_user = runs_as(pid, uid);
  const auto job = job_of(pid);
  if (process.ended()) return error(Code::NOT_FOUND, "pid %d has ended", pid);
  if (!of_user) return error(Code::PERMISSION, "pid %d is not of uid %u", pid, uid);
  if (!job) return error(Code::PERMISSION, "pid %d: its parents come and go", pid);
  if (*job != job_id) return error(Code::PERMISSION, "pid %d is not of job %u", pid, job_id);
  return process;
}

Status JobProcess::kill() const {
  if (::syscall(SYS_pidfd_send_signal, fd_.get(), SIGKILL, nullptr, 0) == 0) return {};
  return errno_error(errno == ESRCH ? Code::NOT_FOUND : Code::IO, errno, "pidfd_send_signal");
}

}  // namespace plexrl::reap
