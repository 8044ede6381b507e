// SPDX-License-Identifier: Apache-2.0
// The adapter to Slurm's job description, with malloc in place of Slurm's allocator.
#include "job_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "description.h"

namespace plexrl::job_submit {
namespace {

using slurm::Option;
using ::testing::ElementsAre;

TEST(JobDescription, EmptyMeansNothingAsked) {
  const Description job;
  const slurm::JobRequest request = read_request(job.d);
  for (const auto& option : request.options) EXPECT_FALSE(option);
  EXPECT_FALSE(request.exclusive || request.whole_memory || request.het_component ||
               request.gpu_hints || request.has_script);
  EXPECT_FALSE(request.min_nodes || request.max_nodes);
  EXPECT_FALSE(concerns_plexrl(request));
}

TEST(JobDescription, ReadsOptionsInBothSpellingsOfTheirNames) {
  Description job;
  job.options({"_SLURM_SPANK_OPTION_plexrl_plexrl_pool=rl",
               "_SLURM_SPANK_OPTION_plexrl_plexrl-model=a=b", "OTHER=1",
               "_SLURM_SPANK_OPTION_plexrl_plexrl_poolx=no", "_SLURM_SPANK_OPTION_plexrl_"});
  const slurm::JobRequest request = read_request(job.d);
  EXPECT_EQ(request.option(Option::kPool), "rl");
  EXPECT_EQ(request.option(Option::kModel), "a=b");
  EXPECT_FALSE(request.option(Option::kShare));
  EXPECT_TRUE(concerns_plexrl(request));
}

TEST(JobDescription, SeesSpecializedCores) {
  Description job;
  EXPECT_FALSE(read_request(job.d).core_spec || read_modify(job.d).sharing);
  for (const int count : {0, 2, CORE_SPEC_THREAD | 1}) {
    job.d.core_spec = static_cast<std::uint16_t>(count);
    EXPECT_TRUE(read_request(job.d).core_spec) << count;
    EXPECT_TRUE(read_modify(job.d).sharing) << count;
  }
}

TEST(JobDescription, SeesWhatTakesAWholeNode) {
  for (const int shared : {JOB_SHARED_NONE, JOB_SHARED_USER, JOB_SHARED_MCS}) {
    Description job;
    job.d.shared = static_cast<std::uint16_t>(shared);
    EXPECT_TRUE(read_request(job.d).exclusive) << shared;
  }
  Description job;
  job.d.shared = JOB_SHARED_OK;
  job.d.pn_min_memory = 0;
  EXPECT_FALSE(read_request(job.d).exclusive);
  EXPECT_TRUE(read_request(job.d).whole_memory);
  job.d.pn_min_memory = MEM_PER_CPU | 0;
  EXPECT_TRUE(read_request(job.d).whole_memory);
  job.d.pn_min_memory = MEM_PER_CPU | 100;
  EXPECT_FALSE(read_request(job.d).whole_memory);
}

TEST(JobDescription, WritesGrantRequestAndEnvironment) {
  Description job;
  job.options({"A=1", "_SLURM_SPANK_OPTION_plexrl_plexrl_pool=rl",
               "_SLURM_SPANK_OPTION_plexrl_plexrl_pool=again"});
  job.environment({"SLURM_GPUS=2", "PATH=/bin"});
  job.d.tres_per_job = ::strdup("gres:gpu:2");
  job.d.cpus_per_tres = ::strdup("gpu:4");
  slurm::Rewrite rewrite;
  rewrite.grant = slurm::Grant{"rl", 50, 100, "full", 0, 0, {"m"}, ""};
  rewrite.partition = "plexrl";
  rewrite.tres_per_node = "gres:plexrl:50";
  rewrite.clear_gpu_hints = true;
  rewrite.environment = {"PATH=/bin", "SLURM_GRES=none", "X=1"};
  apply(rewrite, &job.d);
  EXPECT_STREQ(job.d.partition, "plexrl");
  EXPECT_STREQ(job.d.tres_per_node, "gres:plexrl:50");
  EXPECT_EQ(job.d.tres_per_job, nullptr);
  EXPECT_EQ(job.d.cpus_per_tres, nullptr);
  EXPECT_EQ(job.d.min_nodes, 1U);
  EXPECT_EQ(job.d.max_nodes, 1U);
  EXPECT_THAT(job.environment(), ElementsAre("PATH=/bin", "SLURM_GRES=none", "X=1"));
  const std::string grant = slurm::format_grant(*rewrite.grant);
  EXPECT_STREQ(job.d.spank_job_env[0], "A=1");
  // Every copy of the option: none may keep the user's text.
  for (int i : {1, 2})
    EXPECT_EQ(job.d.spank_job_env[i], "_SLURM_SPANK_OPTION_plexrl_plexrl_pool=" + grant);
  EXPECT_EQ(pool_of(job.d), "rl");
}

TEST(JobDescription, AnOrdinaryJobKeepsItsRequest) {
  Description job;
  job.environment({"A=1", "PLEXRL_TOKEN=x"});
  job.d.partition = ::strdup("batch");
  slurm::Rewrite rewrite;
  rewrite.environment = {"A=1"};
  apply(rewrite, &job.d);
  EXPECT_STREQ(job.d.partition, "batch");
  EXPECT_EQ(job.d.min_nodes, NO_VAL);
  EXPECT_THAT(job.environment(), ElementsAre("A=1"));
}

TEST(JobDescription, OnlyAGrantMakesAJobOneOfAPool) {
  Description job;
  job.options({"_SLURM_SPANK_OPTION_plexrl_plexrl_pool=rl"});
  EXPECT_EQ(pool_of(job.d), "");
}

TEST(JobDescription, AnEmptyUpdateChangesNothing) {
  const Description job;
  const slurm::ModifyRequest request = read_modify(job.d);
  EXPECT_FALSE(request.features || request.sharing || request.whole_memory);
  EXPECT_FALSE(request.min_nodes || request.max_nodes);
}

TEST(JobDescription, SeesWhatAnUpdateSets) {
  Description job;
  job.d.features = ::strdup("");
  job.d.shared = JOB_SHARED_OK;
  job.d.min_nodes = 2;
  job.d.tres_per_node = ::strdup("gres:plexrl:1");
  const slurm::ModifyRequest request = read_modify(job.d);
  EXPECT_TRUE(request.features && request.sharing);
  EXPECT_EQ(request.min_nodes, 2U);
  EXPECT_EQ(request.tres_per_node, "gres:plexrl:1");
}

}  // namespace
}  // namespace plexrl::job_submit
