// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/queued_store.h"

namespace plexrl::runtime {
namespace {

class ProfileBookTest : public ::testing::Test {
 protected:
  static Tenant tenant(std::uint32_t job, const std::string& name, std::uint32_t uid = 1000) {
    Tenant tenant;
    tenant.id = TenantId{job};
    tenant.job_id = job;
    tenant.uid = uid;
    tenant.grant.pool = "rl";
    tenant.grant.models = {"tiny"};
    tenant.grant.name = name;
    return tenant;
  }
  // Of 200 s with others it waits for 100.
  static TenantTotals busy(std::int64_t percent) {
    TenantTotals totals;
    totals.wall_ns = 200 * kSecond.ns;
    totals.wait_others_ns = 60 * kSecond.ns;
    totals.switch_ns = 40 * kSecond.ns;
    totals.device_ns = percent * kSecond.ns;
    totals.kinds[static_cast<std::size_t>(core::OpKind::kGenerate)].run_ns = 6 * kSecond.ns;
    totals.kinds[static_cast<std::size_t>(core::OpKind::kForwardBackward)].run_ns = 3 * kSecond.ns;
    totals.kinds[static_cast<std::size_t>(core::OpKind::kOptimStep)].run_ns = 1 * kSecond.ns;
    return totals;
  }
  slurm::Profile only() {
    const slurm::Profiles all = book_.profiles();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? slurm::Profile{} : all.begin()->second;
  }

  std::unique_ptr<store::StateStore> memory_ = store::make_memory_store();
  store::QueuedStore store_{*memory_};
  ProfileBook book_{store_.queue};
};

TEST_F(ProfileBookTest, ARunIsMeasuredAgainstItsTimeAlone) {
  book_.learn(tenant(1, "grpo"), busy(50));
  ASSERT_EQ(book_.profiles().size(), 1U);
  EXPECT_EQ(book_.profiles().begin()->first,
            (slurm::ProfileKey{1000, "rl", "lora", {"tiny"}, "grpo"}));
  EXPECT_EQ(only(), (slurm::Profile{1, 50, 30, 20}));
}

TEST_F(ProfileBookTest, WhatIsNoRunTeachesNothing) {
  TenantTotals totals = busy(50);
  book_.learn(tenant(1, ""), totals);
  totals.wall_ns = 159 * kSecond.ns;  // 59 alone
  book_.learn(tenant(1, "short"), totals);
  totals.kinds[static_cast<std::size_t>(core::OpKind::kOptimStep)].count = 1;
  book_.learn(tenant(1, "one step"), totals);
  totals.wall_ns = totals.wait_others_ns + totals.switch_ns;
  totals.kinds[static_cast<std::size_t>(core::OpKind::kOptimStep)].count = 2;
  book_.learn(tenant(1, "no time at all"), totals);
  book_.learn(tenant(1, "idle"), busy(0));
  EXPECT_TRUE(book_.profiles().empty());
}

TEST_F(ProfileBookTest, TwoStepsAreEnough) {
  TenantTotals totals = busy(2);
  totals.wall_ns = totals.wait_others_ns + totals.switch_ns + 4 * kSecond.ns;
  totals.kinds[static_cast<std::size_t>(core::OpKind::kOptimStep)].count = 2;
  book_.learn(tenant(1, "fast"), totals);
  EXPECT_EQ(only().busy_percent, 50U);
}

TEST_F(ProfileBookTest, TheMedianOfTheNewestRunsCounts) {
  const std::int64_t runs[] = {20, 90, 20, 21, 22};
  const std::uint32_t expected[] = {20, 90, 20, 21, 21};
  for (std::uint32_t i = 0; i < 5; ++i) {
    book_.learn(tenant(i + 1, "grpo"), busy(runs[i]));
    EXPECT_EQ(only().busy_percent, expected[i]) << i;
    EXPECT_EQ(only().runs, i + 1);
  }
  for (std::uint32_t job = 10; job < 13; ++job) book_.learn(tenant(job, "grpo"), busy(60));
  EXPECT_EQ(only().busy_percent, 60U);
  EXPECT_EQ(only().runs, 8U);
}

TEST_F(ProfileBookTest, ARequeuedJobIsOneRun) {
  book_.learn(tenant(1, "grpo"), busy(20));
  book_.learn(tenant(1, "grpo"), busy(40));
  EXPECT_EQ(only(), (slurm::Profile{1, 40, 24, 16}));
}

TEST_F(ProfileBookTest, IsFoundAgainByTheNextDaemon) {
  for (std::uint32_t job = 1; job <= 7; ++job)
    book_.learn(tenant(job, job % 2 == 0 ? "even" : "odd"), busy(10 * job));
  store_.queue.settle();
  ProfileBook next(store_.queue);
  ASSERT_TRUE(next.load().ok());
  EXPECT_EQ(next.profiles(), book_.profiles());
  next.learn(tenant(8, "even"), busy(80));
  store_.queue.settle();
  ProfileBook third(store_.queue);
  ASSERT_TRUE(third.load().ok());
  EXPECT_EQ(third.profiles(), next.profiles());
}

TEST_F(ProfileBookTest, ADamagedRowIsNamed) {
  ASSERT_TRUE(memory_->put("profiles", 7, 0, "\x01").ok());
  const Status status = ProfileBook(store_.queue).load();
  EXPECT_EQ(status.code(), Code::CORRUPT);
  EXPECT_THAT(status.text(), ::testing::HasSubstr("profile 7"));
}

// A user with many names loses the oldest of their own, and nobody else loses any.
TEST_F(ProfileBookTest, IsBoundedPerUser) {
  book_.learn(tenant(1, "other", 2000), busy(50));
  for (std::uint32_t job = 2; job < 2 + ProfileBook::kMaxPerUser + 3; ++job)
    book_.learn(tenant(job, "run" + std::to_string(job)), busy(50));
  store_.queue.settle();
  ProfileBook next(store_.queue);
  ASSERT_TRUE(next.load().ok());
  for (const ProfileBook* book : {&book_, &next}) {
    const slurm::Profiles all = book->profiles();
    EXPECT_EQ(all.size(), ProfileBook::kMaxPerUser + 1);
    EXPECT_EQ(all.count({2000, "rl", "lora", {"tiny"}, "other"}), 1U);
    EXPECT_EQ(all.count({1000, "rl", "lora", {"tiny"}, "run4"}), 0U);
    EXPECT_EQ(all.count({1000, "rl", "lora", {"tiny"}, "run5"}), 1U);
  }
}

}  // namespace
}  // namespace plexrl::runtime
