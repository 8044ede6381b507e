// SPDX-License-Identifier: Apache-2.0
#include "slurm/modify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace plexrl::slurm {
namespace {

config::SiteConfig site() {
  config::SiteConfig config;
  config::PoolEntry pool;
  pool.name = "rl";
  pool.partition = "plexrl";
  config.pools = {pool};
  pool.name = "two";
  pool.partition = "two_part";
  config.pools.push_back(pool);
  return config;
}

struct Change {
  const char* name;
  std::function<void(ModifyRequest*)> apply;
};

const std::vector<Change>& changes() {
  static const std::vector<Change> list = {
      {"gres", [](ModifyRequest* r) { r->tres_per_node = "gres:nvme:1"; }},
      {"own gres", [](ModifyRequest* r) { r->tres_per_node = "gres:plexrl:100"; }},
      {"gpus", [](ModifyRequest* r) { r->tres_per_job = "gres:gpu:1"; }},
      {"partition", [](ModifyRequest* r) { r->partition = "batch"; }},
      {"other pool", [](ModifyRequest* r) { r->partition = "two_part"; }},
      {"partitions", [](ModifyRequest* r) { r->partition = "plexrl,batch"; }},
      {"features", [](ModifyRequest* r) { r->features = true; }},
      {"sharing", [](ModifyRequest* r) { r->sharing = true; }},
      {"memory", [](ModifyRequest* r) { r->whole_memory = true; }},
      {"nodes", [](ModifyRequest* r) { r->min_nodes = 2; }},
      {"most nodes", [](ModifyRequest* r) { r->max_nodes = 2; }},
  };
  return list;
}

TEST(Modify, UsersMayNotChangeTheRequestOfAPoolJob) {
  for (const Change& change : changes()) {
    ModifyRequest request;
    change.apply(&request);
    EXPECT_EQ(check_modify(request, "rl", site()).code(), Code::PERMISSION) << change.name;
  }
}

TEST(Modify, AdministratorsMay) {
  for (const Change& change : changes()) {
    ModifyRequest request;
    change.apply(&request);
    request.privileged = true;
    EXPECT_TRUE(check_modify(request, "rl", site()).ok()) << change.name;
  }
}

TEST(Modify, OtherChangesOfAPoolJobAreOpen) {
  ModifyRequest request;  // a time limit, a name: nothing that is looked at
  request.partition = "plexrl";
  request.min_nodes = 1;
  request.max_nodes = 1;
  EXPECT_EQ(check_modify(request, "rl", site()).to_string(), "OK");
}

TEST(Modify, OrdinaryJobsMayNotBecomePoolJobs) {
  ModifyRequest request;
  request.partition = "plexrl";
  EXPECT_THAT(check_modify(request, "", site()).text(),
              ::testing::HasSubstr("submit a job with --plexrl-pool=rl"));
  request.partition.clear();
  request.tres_per_node = "gres/plexrl=50";
  EXPECT_THAT(check_modify(request, "", site()).text(),
              ::testing::HasSubstr("submit a job with --plexrl-pool=NAME"));
}

TEST(Modify, OrdinaryJobsChangeFreelyOtherwise) {
  ModifyRequest request;
  request.partition = "batch";
  request.tres_per_node = "gres:gpu:4";
  request.features = true;
  request.sharing = true;
  request.min_nodes = 8;
  EXPECT_TRUE(check_modify(request, "", site()).ok());
}

}  // namespace
}  // namespace plexrl::slurm
