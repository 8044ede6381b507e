// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/cleanup.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace plexrl::cli {
namespace {

TEST(Cleanup, RunsOnceWithTheLastOwner) {
  int runs = 0;
  {
    Cleanup first([&] { ++runs; });
    Cleanup second(std::move(first));
    Cleanup third;
    third = std::move(second);
    EXPECT_EQ(runs, 0);
  }
  EXPECT_EQ(runs, 1);
}

// In a process of its own, which tells by a pipe what it undoes.
TEST(Cleanup, ASignalUndoesAllAndThenEndsTheProgram) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto say = [&](const char* letter) { (void)!::write(ends[1], letter, 1); };
      (void)::signal(signal, SIG_DFL);
      if (!Cleanup::catch_signals().ok()) ::_exit(1);
      const Cleanup one([&] { say("1"); });
      const Cleanup two([&] { say("2"); });
      say("r");
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char letter = 0;
    ASSERT_EQ(::read(ends[0], &letter, 1), 1);
    ::kill(child, signal);
    std::string said;
    while (::read(ends[0], &letter, 1) == 1) said += letter;
    EXPECT_EQ(said, "21");
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal);
    ::close(ends[0]);
  }
}

// As by nohup. Of two that wait, the lower number is taken first.
TEST(Cleanup, AnIgnoredSignalStaysIgnored) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::signal(SIGHUP, SIG_IGN);
    if (!Cleanup::catch_signals().ok()) ::_exit(1);
    (void)!::write(ends[1], "r", 1);
    for (;;) ::pause();
  }
  char letter = 0;
  ASSERT_EQ(::read(ends[0], &letter, 1), 1);
  ::kill(child, SIGHUP);
  ::kill(child, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  for (const int fd : ends) ::close(fd);
}

}  // namespace
}  // namespace plexrl::cli
