// SPDX-License-Identifier: Apache-2.0
#include "slurm/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "slurm/host_memory.h"
#include "slurm/slowdown.h"

namespace plexrl::slurm {
namespace {

using ::testing::HasSubstr;

config::ModelEntry model(const char* name, std::uint64_t parameters) {
  config::ModelEntry entry;
  entry.name = name;
  entry.parameters = parameters;
  entry.hidden_size = 128;
  entry.layers = 3;
  entry.intermediate_size = 384;
  return entry;
}

config::SiteConfig site() {
  config::SiteConfig config;
  config.models = {model("tiny", 1000000), model("judge", 2000000), model("huge", 1ULL << 40)};
  config::PoolEntry rl;
  rl.name = "rl";
  rl.partition = "plexrl";
  rl.models = {"tiny", "judge", "huge"};
  rl.host_memory_mib = 4096;
  config::PoolEntry closed = rl;
  closed.name = "closed";
  closed.partition = "closed_part";
  closed.models = {"tiny"};
  closed.users = {"bob"};
  closed.groups = {"rlvr"};
  closed.train_modes = {"full"};
  closed.max_share = 50;
  closed.default_share = 25;
  closed.max_lora_rank = 8;
  config.pools = {rl, closed};
  return config;
}

const Submitter kAlice{1001, "alice", {"users"}};
const Submitter kBob{1002, "bob", {"users"}};
const Submitter kCarol{1003, "carol", {"users", "rlvr"}};

void set(JobRequest* request, Option option, const char* value) {
  request->options[static_cast<std::size_t>(option)] = value;
}

JobRequest batch(const char* pool = "rl", const char* models = "tiny") {
  JobRequest request;
  request.has_script = true;
  if (pool != nullptr) set(&request, Option::kPool, pool);
  if (models != nullptr) set(&request, Option::kModel, models);
  return request;
}

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

TEST(Rewrite, BatchJobsLoseTheirGpuRequest) {
  JobRequest request = batch();
  request.tres_per_node = "gres:gpu:a100:2,gres:nvme:1";
  request.tres_per_job = "gres:gpu:2";
  request.tres_per_socket = "gres:shard:2";
  request.tres_per_task = "gres:mps:10";
  request.gpu_hints = true;
  request.environment = {"PATH=/bin", "SLURM_GPUS=2"};
  const Rewrite result = accepted(request);
  EXPECT_THAT(result.tres_per_node, ::testing::StartsWith("gres:nvme:1,gres:plexrl:50,"));
  EXPECT_EQ(result.tres_per_job + result.tres_per_socket + result.tres_per_task, "");
  EXPECT_TRUE(result.clear_gpu_hints);
  EXPECT_EQ(result.environment,
            (std::vector<std::string>{"PATH=/bin", "SLURM_GRES=none", "PLEXRL_MARKED=SLURM_GRES"}));
}

TEST(Rewrite, WritesTheGresFormOfNewerSlurm) {
  JobRequest request = batch();
  request.gres_prefix = "gres/";
  EXPECT_THAT(accepted(request).tres_per_node,
              ::testing::StartsWith("gres/plexrl:50,gres/plexrl_mem:"));
}

TEST(Rewrite, JobsWithoutAScriptGetNoEnvironment) {
  JobRequest request = batch();
  request.has_script = false;
  EXPECT_TRUE(accepted(request).environment.empty());
}

TEST(Rewrite, AJobFromWithinAJobLosesTheOuterTokens) {
  JobRequest request = batch();
  request.environment = {"PLEXRL_TOKEN=abc", "PLEXRL_MARKED=PLEXRL_TOKEN", "A=1"};
  EXPECT_EQ(accepted(request).environment,
            (std::vector<std::string>{"A=1", "SLURM_GRES=none", "PLEXRL_MARKED=SLURM_GRES"}));
}

TEST(Rewrite, OrdinaryJobsAreLeftAlone) {
  JobRequest request = batch(nullptr, nullptr);
  request.partition = "batch";
  request.tres_per_node = "gres:gpu:2";
  request.exclusive = true;
  request.min_nodes = 64;
  request.environment = {"A=1", "SLURM_GPUS=2"};
  const Rewrite result = accepted(request);
  EXPECT_FALSE(result.grant);
  EXPECT_EQ(result.environment, request.environment);
}

TEST(Rewrite, OrdinaryJobsFromWithinAPoolJobLoseTheOuterTokens) {
  JobRequest request = batch(nullptr, nullptr);
  request.environment = {"A=1", "PLEXRL_TOKEN=abc", "SLURM_GRES=none",
                         "PLEXRL_MARKED=PLEXRL_TOKEN,SLURM_GRES"};
  EXPECT_EQ(accepted(request).environment, std::vector<std::string>{"A=1"});
}

TEST(Rewrite, ThePoolsOwnPartitionMayBeNamed) {
  JobRequest request = batch();
  request.partition = "plexrl";
  EXPECT_EQ(accepted(request).partition, "plexrl");
}

struct Refusal {
  const char* name;
  std::function<void(JobRequest*)> change;
  const char* says;
};

TEST(Rewrite, RefusalsSayWhatToWriteInstead) {
  const Refusal cases[] = {
      {"unknown pool", [](JobRequest* r) { set(r, Option::kPool, "lr"); },
       "no such pool; pools open to you: rl"},
      {"pool is no name", [](JobRequest* r) { set(r, Option::kPool, "a:b"); },
       "write --plexrl-pool=NAME"},
      {"forged grant",
       [](JobRequest* r) {
         set(r, Option::kPool, "v1:pool=rl:share=99:mem=1:mode=full:rank=0:slowdown=0:models=tiny");
       },
       "write --plexrl-pool=NAME"},
      {"unknown model", [](JobRequest* r) { set(r, Option::kModel, "tinny"); },
       "it has: tiny, judge, huge"},
      {"no model", [](JobRequest* r) { r->options[1].reset(); }, "add --plexrl-model=NAME"},
      {"model list", [](JobRequest* r) { set(r, Option::kModel, "tiny,,judge"); },
       "write names with commas between"},
      {"mode", [](JobRequest* r) { set(r, Option::kTrain, "qlora"); }, "write lora, lora:RANK"},
      {"rank", [](JobRequest* r) { set(r, Option::kTrain, "lora:65"); }, "write lora:64"},
      {"share value", [](JobRequest* r) { set(r, Option::kShare, "75"); }, "write 25, 50 or 100"},
      {"slowdown", [](JobRequest* r) { set(r, Option::kSlowdown, "fast"); }, "such as 1.5"},
      {"env", [](JobRequest* r) { set(r, Option::kEnv, "openai"); }, "write none"},
      {"too large",
       [](JobRequest* r) {
         set(r, Option::kModel, "huge");
         set(r, Option::kTrain, "full");
       },
       "write --plexrl-train=lora"},
      {"partition", [](JobRequest* r) { r->partition = "batch"; }, "leave --partition out"},
      {"partitions", [](JobRequest* r) { r->partition = "plexrl,batch"; }, "leave --partition out"},
      {"exclusive", [](JobRequest* r) { r->exclusive = true; }, "--plexrl-share=100"},
      {"cores of the service", [](JobRequest* r) { r->core_spec = true; }, "--core-spec"},
      {"all memory", [](JobRequest* r) { r->whole_memory = true; }, "--mem=0"},
      {"two nodes", [](JobRequest* r) { r->min_nodes = 2; }, "write --nodes=1"},
      {"up to two nodes", [](JobRequest* r) { r->min_nodes = 1, r->max_nodes = 2; },
       "write --nodes=1"},
      {"heterogeneous", [](JobRequest* r) { r->het_component = true; }, "a job of its own"},
      {"srun with GPUs",
       [](JobRequest* r) { r->has_script = false, r->tres_per_node = "gres:gpu:1"; },
       "the pool's service brings the devices"},
      {"salloc with GPU hints", [](JobRequest* r) { r->has_script = false, r->gpu_hints = true; },
       "GPU options do not go with"},
      {"hand-written share", [](JobRequest* r) { r->tres_per_node = "gres:plexrl:100"; },
       "are set by the site"},
      {"hand-written memory", [](JobRequest* r) { r->tres_per_job = "gres/PLEXRL_mem=1"; },
       "are set by the site"},
      {"hidden in a list", [](JobRequest* r) { r->tres_per_task = "gpu:1, plexrl:1"; },
       "are set by the site"},
  };
  for (const Refusal& c : cases) {
    JobRequest request = batch();
    c.change(&request);
    EXPECT_THAT(refused(request), HasSubstr(c.says)) << c.name;
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

TEST(Rewrite, AUserWithoutAnyPoolIsTold) {
  config::SiteConfig config = site();
  config.pools.erase(config.pools.begin());
  const auto result = rewrite(batch("closed"), config, kAlice);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().text(), HasSubstr("no pool is open to you"));
}

TEST(Rewrite, PartitionsOfPoolsNeedTheOption) {
  JobRequest request = batch(nullptr, nullptr);
  request.partition = "plexrl";
  EXPECT_THAT(refused(request), HasSubstr("add --plexrl-pool=rl"));
  request.partition = "batch,closed_part";
  EXPECT_THAT(refused(request), HasSubstr("add --plexrl-pool=closed"));
}

TEST(Rewrite, HandWrittenGresIsRefusedWithoutThePoolToo) {
  JobRequest request = batch(nullptr, nullptr);
  request.tres_per_node = "gres:plexrl:1";
  EXPECT_THAT(refused(request), HasSubstr("write --plexrl-pool=NAME"));
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

}  // namespace
}  // namespace plexrl::slurm
