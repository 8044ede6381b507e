// SPDX-License-Identifier: Apache-2.0
#include "runtime/task_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "store/state_store.h"

namespace plexrl::runtime {
namespace {

TEST(TaskWatch, SeesTheEndOfAProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto store = store::make_memory_store();
  TaskWatch watch(*store);
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
  const auto store = store::make_memory_store();
  TaskWatch watch(*store);
  EXPECT_EQ(watch.add(TenantId{1}, 0).code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(watch.add(TenantId{1}, -5).code(), Code::INVALID_ARGUMENT);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(watch.add(TenantId{1}, child).code(), Code::NOT_FOUND);
}

TEST(TaskWatch, AttachedTasksAreWatchedAfterARestartAndClientsAreNot) {
  const auto store = store::make_memory_store();
  const TenantId tenant{1};
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  {
    TaskWatch watch(*store);
    ASSERT_TRUE(watch.attach(tenant, child).ok());
    ASSERT_TRUE(watch.attach(tenant, child).ok());
    ASSERT_TRUE(watch.add(tenant, ::getpid()).ok());
    EXPECT_EQ(watch.live(tenant), 2U);
  }
  TaskWatch later(*store);
  ASSERT_TRUE(later.load().ok());
  EXPECT_EQ(later.live(tenant), 1U);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  TaskWatch last(*store);
  ASSERT_TRUE(last.load().ok());
  EXPECT_EQ(last.live(tenant), 0U);
  EXPECT_TRUE(last.known(tenant));
  last.forget(tenant);
  EXPECT_FALSE(store->get("tasks", 1, 0).has_value());
}

TEST(TaskWatch, AReusedPidIsAnotherProcess) {
  const auto store = store::make_memory_store();
  const auto started = start_time(::getpid());
  ASSERT_TRUE(started);
  const std::string pid = std::to_string(::getpid());
  ASSERT_TRUE(store->put("tasks", 1, 0, pid + ' ' + std::to_string(*started)).ok());
  ASSERT_TRUE(store->put("tasks", 2, 0, pid + ' ' + std::to_string(*started + 1)).ok());
  TaskWatch watch(*store);
  ASSERT_TRUE(watch.load().ok());
  EXPECT_EQ(watch.live(TenantId{1}), 1U);
  EXPECT_EQ(watch.live(TenantId{2}), 0U);
  EXPECT_TRUE(watch.known(TenantId{2}));
}

}  // namespace
}  // namespace plexrl::runtime
