// SPDX-License-Identifier: Apache-2.0
#include "runtime/holder_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace plexrl::runtime {
namespace {

// While one lives, this process can open nothing.
class NoFds {
 public:
  NoFds() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 1;  // poll() wants one
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  NoFds(const NoFds&) = delete;
  NoFds& operator=(const NoFds&) = delete;
  ~NoFds() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

pid_t start_sleeper() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) ::pause();
}

void end(pid_t pid) {
  ::kill(pid, SIGKILL);
  (void)::waitpid(pid, nullptr, 0);
}

TEST(HolderProcesses, AnEndedOneIsGone) {
  const pid_t child = start_sleeper();
  HolderProcesses processes;
  ASSERT_TRUE(processes.add(child, ::getuid()).ok());
  EXPECT_EQ(processes.live(), 1U);
  EXPECT_EQ(processes.add(child + 0x1000000, ::getuid()).code(), Code::NOT_FOUND);
  end(child);
  EXPECT_EQ(processes.live(), 0U);
  processes.refresh();
  EXPECT_EQ(processes.live(), 0U);
}

// A zombie cannot use a device; that its parent never asks for it changes nothing.
TEST(HolderProcesses, AZombieIsGone) {
  const pid_t child = start_sleeper();
  HolderProcesses processes;
  ASSERT_TRUE(processes.add(child, ::getuid()).ok());
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  processes.refresh();
  EXPECT_EQ(processes.live(), 0U);
  end(child);
}

// Not being able to look is no proof that nobody is there.
TEST(HolderProcesses, WithoutFdsNobodyIsTakenForGone) {
  const pid_t child = start_sleeper();
  HolderProcesses processes;
  ASSERT_TRUE(processes.add(child, ::getuid()).ok());
  end(child);
  {
    const NoFds no_fds;
    processes.refresh();
    EXPECT_EQ(processes.live(), 1U);
  }
  processes.refresh();
  EXPECT_EQ(processes.live(), 0U);
}

}  // namespace
}  // namespace plexrl::runtime
