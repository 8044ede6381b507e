// SPDX-License-Identifier: Apache-2.0
#include "slurm/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/host_memory.h"
#include "slurm/slowdown.h"
#include "submission_cases.h"

namespace plexrl::slurm {
namespace {

using ::testing::HasSubstr;

config::SiteConfig site() {
  auto site = config::parse_site_config(kCasesSite, "cases");
  EXPECT_TRUE(site) << site.error().text();
  return site ? *site : config::SiteConfig{};
}

Profiles profiles() {
  auto parsed = parse_profiles(kCasesProfiles);
  EXPECT_TRUE(parsed && parsed->ignored == 1);
  return parsed ? parsed->profiles : Profiles{};
}

const Submitter kAlice{1001, "alice", {"users"}};
const Submitter kBob{1002, "bob", {"users"}};
const Submitter kCarol{1003, "carol", {"users", "rlvr"}};

Rewrite accepted(const JobRequest& request, const Submitter& who = kAlice) {
  const auto result = rewrite(request, site(), who);
  EXPECT_TRUE(result) << result.error().to_string();
  return result ? *result : Rewrite{};
}

std::string refused(const JobRequest& request, const Submitter& who = kAlice) {
  const auto result = rewrite(request, site(), who);
  return result ? "accepted" : result.error().text();
}

TEST(Rewrite, FillsInEverythingFromThePool) {
  const Rewrite result = accepted(batch());
  ASSERT_TRUE(result.grant);
  EXPECT_EQ(result.partition, "plexrl");
  EXPECT_EQ(result.grant->pool, "rl");
  EXPECT_EQ(result.grant->share_percent, 50U);
  EXPECT_EQ(result.grant->train_mode, "lora");
  EXPECT_EQ(result.grant->lora_rank, 16U);
  EXPECT_EQ(result.grant->slowdown_permille, 0U);
  EXPECT_EQ(result.grant->models, std::vector<std::string>{"tiny"});
  EXPECT_EQ(result.tres_per_node,
            "gres:plexrl:50,gres:plexrl_mem:" + std::to_string(result.grant->host_memory_mib));
}

TEST(Rewrite, TheGrantCanBeWrittenAndRead) {
  JobRequest request = batch("rl", "tiny,judge");
  set(&request, Option::kTrain, "full");
  set(&request, Option::kSlowdown, "1.25");
  const Rewrite result = accepted(request);
  ASSERT_TRUE(result.grant);
  EXPECT_EQ(parse_grant(format_grant(*result.grant)).value(), *result.grant);
}

// 36 bytes per parameter of both models, in chunks of 2 MiB, and the room for KV caches.
TEST(Rewrite, HostMemoryCoversAllModelsAndTheKvCache) {
  JobRequest request = batch("rl", "tiny,judge");
  set(&request, Option::kTrain, "full");
  const Rewrite result = accepted(request);
  ASSERT_TRUE(result.grant);
  EXPECT_EQ(result.grant->host_memory_mib, 9U * 4U + 9U * 8U + 64U);
}

TEST(Rewrite, SamplingAloneTakesTheKvCacheOnly) {
  JobRequest request = batch();
  set(&request, Option::kTrain, "none");
  EXPECT_EQ(accepted(request).grant->host_memory_mib, 64U);
}

TEST(Rewrite, TheOnlyModelOfAPoolNeedsNoName) {
  EXPECT_EQ(accepted(batch("closed", nullptr), kBob).grant->models,
            std::vector<std::string>{"tiny"});
}

TEST(Rewrite, ThePoolsOnlyModeIsTheDefault) {
  const Rewrite result = accepted(batch("closed"), kBob);
  EXPECT_EQ(result.grant->train_mode, "full");
  EXPECT_EQ(result.grant->lora_rank, 0U);
}

TEST(Rewrite, UsersAndMembersOfGroupsMayUseAClosedPool) {
  EXPECT_TRUE(accepted(batch("closed"), kBob).grant);
  EXPECT_TRUE(accepted(batch("closed"), kCarol).grant);
  EXPECT_EQ(refused(batch("closed"), kAlice),
            "--plexrl-pool=closed: the pool is not open to you; pools open to you: rl");
}

// A job that is busy for its share of the time: idle time is not slowed down.
TEST(Rewrite, SlowdownGivesTheLeastShare) {
  const struct {
    const char* asked;
    const char* slowdown;
    std::uint32_t share;
  } cases[] = {{"50", "4", 50},    {"50", "1.9", 50},  {"50", "1.5", 50},   {"50", "1.35", 59},
               {"50", "1.25", 67}, {"50", "1.2", 72},  {"50", "1", 100},    {"25", "1.75", 25},
               {"25", "1.35", 42}, {"25", "1.05", 84}, {"100", "1.35", 100}};
  for (const auto& c : cases) {
    JobRequest request = batch();
    set(&request, Option::kShare, c.asked);
    set(&request, Option::kSlowdown, c.slowdown);
    EXPECT_EQ(accepted(request).grant->share_percent, c.share) << c.asked << ' ' << c.slowdown;
    request.options[static_cast<std::size_t>(Option::kShare)].reset();
    if (c.asked == std::string("50")) {
      EXPECT_EQ(accepted(request).grant->share_percent, c.share) << "the pool's, " << c.slowdown;
    }
  }
}

// Idle time stays, busy time is served at the share: (1 - b) + b / s <= f, without rounding.
bool keeps(std::uint32_t busy_percent, std::uint32_t share_percent, std::uint32_t permille) {
  return (100 - busy_percent) * 10 * share_percent + busy_percent * 1000 <=
         permille * share_percent;
}

TEST(Slowdown, TheLeastShareIsTheLeastThatKeepsTheBound) {
  for (std::uint32_t busy = 1; busy <= 100; ++busy)
    for (std::uint32_t bound = 1000; bound <= 5000; bound += 50) {
      const std::uint32_t share = share_for_slowdown(busy, bound);
      ASSERT_LE(share, 100u);
      EXPECT_TRUE(keeps(busy, share, bound)) << busy << ' ' << bound;
      if (share > 1) {
        EXPECT_FALSE(keeps(busy, share - 1, bound)) << busy << ' ' << bound;
      }
    }
}

TEST(Rewrite, ARequestedShareIsKept) {
  JobRequest request = batch();
  set(&request, Option::kShare, "25");
  EXPECT_EQ(accepted(request).grant->share_percent, 25U);
  set(&request, Option::kSlowdown, "4");
  EXPECT_EQ(accepted(request).grant->share_percent, 25U);
}

TEST(Rewrite, WritesTheGresFormOfNewerSlurm) {
  JobRequest request = batch();
  request.gres_prefix = "gres/";
  EXPECT_THAT(accepted(request).tres_per_node,
              ::testing::StartsWith("gres/plexrl:50,gres/plexrl_mem:"));
}

TEST(Rewrite, RefusalsSayWhatToWriteInstead) {
  for (const Refusal& c : refusals()) {
    JobRequest request = batch();
    c.change(&request);
    EXPECT_THAT(refused(request), HasSubstr(c.says)) << c.name;
  }
}

TEST(Rewrite, AcceptedJobsBecomeWhatTheTableSays) {
  for (const Acceptance& c : acceptances()) {
    JobRequest request = batch();
    c.change(&request);
    const auto rewritten = rewrite(request, site(), {kCasesUid, "", {}}, profiles());
    ASSERT_TRUE(rewritten) << c.name << rewritten.error().text();
    const Rewrite& result = *rewritten;
    EXPECT_EQ(result.note, c.note) << c.name;
    EXPECT_EQ(result.prefer, c.prefer) << c.name;
    EXPECT_EQ(result.mark, c.mark) << c.name;
    EXPECT_EQ(result.grant ? format_grant(*result.grant) : "", c.grant) << c.name;
    EXPECT_EQ(result.environment, c.environment) << c.name;
    if (!result.grant) continue;
    EXPECT_EQ(result.partition, c.partition) << c.name;
    EXPECT_EQ(result.tres_per_node, c.tres_per_node) << c.name;
    EXPECT_EQ(result.tres_per_job + result.tres_per_socket + result.tres_per_task, c.other_tres)
        << c.name;
  }
}

TEST(Rewrite, LimitsOfAClosedPoolHold) {
  JobRequest request = batch("closed");
  set(&request, Option::kShare, "100");
  EXPECT_THAT(refused(request, kBob), HasSubstr("write --plexrl-share=50"));
  request = batch("closed");
  set(&request, Option::kSlowdown, "1.2");
  EXPECT_THAT(refused(request, kBob), HasSubstr("needs a share of 56"));
  request = batch("closed");
  set(&request, Option::kTrain, "lora");
  EXPECT_THAT(refused(request, kBob), HasSubstr("it allows: full"));
}

TEST(Rewrite, LearntSharesStayBelowThePoolsLimit) {
  JobRequest request = batch("closed");
  request.name = "busy";
  const Profiles known = {{{kBob.uid, "closed", "full", {"tiny"}, "busy"}, {3, 90, 40, 50}}};
  const auto result = rewrite(request, site(), kBob, known);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->grant->share_percent, 50U);
  set(&request, Option::kSlowdown, "1.2");
  const auto bounded = rewrite(request, site(), kBob, known);
  ASSERT_FALSE(bounded);
  EXPECT_THAT(bounded.error().text(), HasSubstr("busy for 90 percent of its time, as its earlier"));
}

TEST(Rewrite, AUserWithoutAnyPoolIsTold) {
  config::SiteConfig config = site();
  config.pools.erase(config.pools.begin());
  const auto result = rewrite(batch("closed"), config, kAlice);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().text(), HasSubstr("no pool is open to you"));
}

TEST(Rewrite, OtherOptionsNeedThePool) {
  for (const OptionRow& row : option_table()) {
    if (row.option == Option::kPool) continue;
    JobRequest request = batch(nullptr, nullptr);
    set(&request, row.option, "none");
    EXPECT_EQ(refused(request),
              std::string("--") + row.name + " has no effect alone: add --plexrl-pool=NAME");
  }
}

TEST(Rewrite, ClientsAreForSitesWithHttpByTcp) {
  config::SiteConfig with_http = site();
  with_http.daemon.http_address = "127.0.0.1:585";
  JobRequest request = batch();
  set(&request, Option::kEnv, "openai,tinker");
  const auto granted = rewrite(request, with_http, kAlice);
  ASSERT_TRUE(granted) << granted.error().to_string();
  EXPECT_THAT(format_grant(*granted->grant), HasSubstr(":env=tinker,openai"));
  const auto refused = rewrite(request, site(), kAlice);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::UNSUPPORTED);
  EXPECT_THAT(refused.error().text(), HasSubstr("leave the option out or write none"));
  set(&request, Option::kEnv, "none");
  EXPECT_TRUE(rewrite(request, site(), kAlice));
}

}  // namespace
}  // namespace plexrl::slurm
