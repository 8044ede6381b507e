// SPDX-License-Identifier: Apache-2.0
#include "runtime/task_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace plexrl::runtime {
namespace {

TEST(TaskWatch, SeesTheEndOfAProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  TaskWatch watch;
  const TenantId tenant{1};
  ASSERT_TRUE(watch.add(tenant, child).ok());
  ASSERT_TRUE(watch.add(tenant, child).ok());
  EXPECT_EQ(watch.live(tenant), 1U);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(watch.live(tenant), 0U);
  EXPECT_TRUE(watch.known(tenant));
}

TEST(TaskWatch, RefusesWhatIsNoProcess) {
  TaskWatch watch;
  EXPECT_EQ(watch.add(TenantId{1}, 0).code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(watch.add(TenantId{1}, -5).code(), Code::INVALID_ARGUMENT);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(watch.add(TenantId{1}, child).code(), Code::NOT_FOUND);
}

}  // namespace
}  // namespace plexrl::runtime
