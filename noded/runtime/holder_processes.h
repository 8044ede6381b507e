// SPDX-License-Identifier: Apache-2.0
// HolderProcesses: the processes that may use the device under a lease: those that the holder named
// and what they have started since. Each is held as a pidfd, so that a reused pid cannot be taken
// for one. A descendant is found by parent, or by process group when a named process leads one;
// one that left both between two refreshes is not seen (a job's cgroup is the reaper's matter).
// What cannot be looked at, as there are no file descriptors left, counts as one that lives.
// Loop thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::runtime {

class HolderProcesses {
 public:
  static constexpr std::size_t kMaxNamed = 64;
  static constexpr std::size_t kMaxHeld = 1024;  // fd limits are the reason

  // NOT_FOUND: no such process; PERMISSION: not one of `uid`; BUSY: too many. `started` != 0: the
  // process must have started then (kernel ticks since boot), else NOT_FOUND.
  [[nodiscard]] Status add(pid_t pid, std::uint32_t uid, std::uint64_t started = 0);
  // Looks for descendants; reads /proc once.
  void refresh();
  // Drops the dead ones and returns how many live, with those that the last refresh has seen but
  // could not hold. Ask again after a refresh for proof.
  [[nodiscard]] std::size_t live();
  [[nodiscard]] std::vector<pid_t> pids() const;
  // (pid, start time) of those that were named.
  [[nodiscard]] const std::map<pid_t, std::uint64_t>& named() const { return named_; }

 private:
  struct Seen {
    pid_t parent = 0;
    pid_t group = 0;
  };
  [[nodiscard]] Status hold(pid_t pid);
  void blind(const Status& why);
  [[nodiscard]] bool belongs(const std::map<pid_t, Seen>& seen, pid_t pid) const;

  std::map<pid_t, UniqueFd> held_;
  std::map<pid_t, std::uint64_t> named_;
  std::set<pid_t> groups_;  // led by a named process
  std::size_t unheld_ = 0;
};

}  // namespace plexrl::runtime
