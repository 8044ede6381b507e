// SPDX-License-Identifier: Apache-2.0
#include "runtime/tenant_table.h"

#include <gtest/gtest.h>

#include "store/state_store.h"

namespace plexrl::runtime {
namespace {

slurm::Grant grant_of(std::uint64_t mib = 64) {
  slurm::Grant grant;
  grant.pool = "rl";
  grant.host_memory_mib = mib;
  grant.lora_rank = 8;
  grant.models = {"tiny"};
  return grant;
}

class TenantTableTest : public ::testing::Test {
 protected:
  TenantTable make() {
    return TenantTable(*store_, [this] { return "token" + std::to_string(++tokens_); });
  }
  int tokens_ = 0;
  std::unique_ptr<store::StateStore> store_ = store::make_memory_store();
  TenantTable table_ = make();
  TimePoint now_{1000};
};

TEST_F(TenantTableTest, ARetriedPrologIsTheSameIncarnation) {
  const auto first = table_.open(7, 1000, 100, grant_of(), now_).value();
  const auto second = table_.open(7, 1000, 100, grant_of(), now_).value();
  EXPECT_TRUE(first.created);
  EXPECT_FALSE(second.new_incarnation);
  EXPECT_EQ(table_.find(first.id)->token, "token1");
}

TEST_F(TenantTableTest, OpenAfterATaskAttachedIsARequeueAndTheOldTokenDies) {
  const auto first = table_.open(7, 1000, 100, grant_of(), now_).value();
  ASSERT_TRUE(table_.attach(7, 1000, now_));
  const auto second = table_.open(7, 1000, 100, grant_of(), now_).value();
  EXPECT_EQ(first.id, second.id);
  EXPECT_TRUE(second.new_incarnation);
  EXPECT_EQ(table_.authenticate("token1", 1000).error().code(), Code::AUTH);
  EXPECT_EQ(table_.authenticate("token2", 1000).value(), first.id);
}

TEST_F(TenantTableTest, TheTokenOfAnotherUserIsNotAccepted) {
  (void)table_.open(7, 1000, 100, grant_of(), now_).value();
  EXPECT_EQ(table_.authenticate("token1", 1001).error().code(), Code::AUTH);
  EXPECT_EQ(table_.authenticate("token1x", 1000).error().code(), Code::AUTH);
  EXPECT_EQ(table_.authenticate("", 1000).error().code(), Code::AUTH);
}

TEST_F(TenantTableTest, AClosedJobsTokenIsDeadAndOnlyOpenRevivesIt) {
  const auto opened = table_.open(7, 1000, 100, grant_of(), now_).value();
  ASSERT_TRUE(table_.close(opened.id, TenantState::kClosed, now_).ok());
  EXPECT_EQ(table_.authenticate("token1", 1000).error().code(), Code::AUTH);
  EXPECT_EQ(table_.attach(7, 1000, now_).error().code(), Code::NOT_FOUND);
  EXPECT_EQ(table_.open(7, 1000, 100, grant_of(), now_).value().id, opened.id);
}

TEST_F(TenantTableTest, AnOrphanIsOpenedAgainByAttachWithANewToken) {
  const auto opened = table_.open(7, 1000, 100, grant_of(), now_).value();
  ASSERT_TRUE(table_.close(opened.id, TenantState::kOrphan, now_).ok());
  ASSERT_TRUE(table_.attach(7, 1000, now_));
  EXPECT_EQ(table_.authenticate("token2", 1000).value(), opened.id);
}

TEST_F(TenantTableTest, AttachByAnotherUserIsRefused) {
  (void)table_.open(7, 1000, 100, grant_of(), now_).value();
  EXPECT_EQ(table_.attach(7, 1001, now_).error().code(), Code::PERMISSION);
  EXPECT_EQ(table_.attach(8, 1000, now_).error().code(), Code::NOT_FOUND);
}

TEST_F(TenantTableTest, AnotherUsersKeptJobNumberIsRefused) {
  (void)table_.open(7, 1000, 100, grant_of(), now_).value();
  EXPECT_EQ(table_.open(7, 1001, 100, grant_of(), now_).error().code(), Code::PERMISSION);
}

TEST_F(TenantTableTest, EverythingSurvivesARestart) {
  const auto opened = table_.open(7, 1000, 100, grant_of(128), now_).value();
  ASSERT_TRUE(table_.attach(7, 1000, now_));
  TenantTable again = make();
  ASSERT_TRUE(again.load().ok());
  const Tenant* const tenant = again.find_job(7);
  ASSERT_NE(tenant, nullptr);
  EXPECT_TRUE(tenant->attached);
  EXPECT_EQ(tenant->grant, grant_of(128));
  EXPECT_EQ(again.authenticate("token1", 1000).value(), opened.id);
  EXPECT_GT(again.open(8, 1000, 100, grant_of(), now_).value().id, opened.id);
}

TEST_F(TenantTableTest, ADamagedRowIsNamed) {
  ASSERT_TRUE(store_->put("tenants", 3, 0, "{\"job_id\":").ok());
  TenantTable again = make();
  const Status status = again.load();
  EXPECT_EQ(status.code(), Code::CORRUPT);
  EXPECT_NE(status.text().find("tenant 3"), std::string::npos);
}

TEST(RandomToken, Has64HexDigitsAndDiffers) {
  const std::string a = random_token();
  EXPECT_EQ(a.size(), 64U);
  EXPECT_EQ(a.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(a, random_token());
}

}  // namespace
}  // namespace plexrl::runtime
