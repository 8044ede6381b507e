// SPDX-License-Identifier: Apache-2.0
#include "config/slurm_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexrl::config {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

SiteConfig site() {
  SiteConfig config;
  PoolEntry pool;
  pool.name = "rl";
  pool.partition = "plexrl";
  pool.nodes = {"node[1-4]", "big1"};
  pool.host_memory_mib = 8000;
  pool.device_memory_mib = 2000;
  config.pools = {pool};
  config.daemon.engine_threads = 2;
  return config;
}

// Two sockets of four cores; the second thread of core i is CPU i + 8, as x86 servers number them.
Machine machine() {
  Machine m;
  m.sockets = 2;
  m.memory_mib = 64000;
  for (unsigned i = 0; i < 8; ++i) m.cores.push_back({{i, i + 8}});
  return m;
}

const SlurmTextOptions kOptions{"/etc/plexrl/plexrl.yaml", "/usr/lib/slurm-wlm", false};

std::string text(const SlurmTextOptions& options = kOptions) {
  const auto result = slurm_text(site(), machine(), options);
  EXPECT_TRUE(result) << result.error().to_string();
  return result ? *result : "";
}

// Three of eight cores: two engine threads and plexrld.
TEST(SlurmText, WithholdsTheSameCoresInSlurmsAndTheKernelsNumbers) {
  EXPECT_THAT(text(), HasSubstr("CpuSpecList=10-15 MemSpecLimit=14096 "));
  EXPECT_THAT(text(), HasSubstr("AllowedCPUs=5-7,13-15\nMemoryMax=14096M\n"));
}

TEST(SlurmText, LeavesJobsTheCpusOfTheSiteFile) {
  SiteConfig config = site();
  config.pools[0].node_cpus = 8;
  const auto result = slurm_text(config, machine(), kOptions);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_THAT(*result, HasSubstr("CpuSpecList=8-15 "));
  EXPECT_THAT(*result, HasSubstr("AllowedCPUs=4-7,12-15\n"));
  config.pools[0].node_cpus = 9;
  EXPECT_THAT(slurm_text(config, machine(), kOptions).error().text(), HasSubstr("write 10"));
  config.pools[0].node_cpus = 12;
  EXPECT_THAT(slurm_text(config, machine(), kOptions).error().text(),
              HasSubstr("this machine has 10 beside the 3 cores of the service"));
}

// 8000 of host memory and 20000 of disk, less twice the KV cache of a job.
TEST(SlurmText, TheDiskTierCountsAndItsFolderIsWritable) {
  SiteConfig config = site();
  config.pools[0].disk_tier_dir = "/scratch/plexrl";
  config.pools[0].disk_tier_mib = 20000;
  const auto result = slurm_text(config, machine(), kOptions);
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_THAT(*result, HasSubstr("Gres=plexrl:100,plexrl_mem:27872 "));
  EXPECT_THAT(*result, HasSubstr("Name=plexrl_mem Count=27872 Flags=CountOnly\n"));
  EXPECT_THAT(*result, HasSubstr("MemoryMax=14096M\nReadWritePaths=/scratch/plexrl\n"));
}

TEST(SlurmText, DescribesNodesAndPartition) {
  EXPECT_THAT(text(),
              HasSubstr("NodeName=node[1-4],big1 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 "
                        "RealMemory=64000 "));
  EXPECT_THAT(text(), HasSubstr("Gres=plexrl:100,plexrl_mem:8000 "
                                "Feature=plexrl_rl_for_rollout,plexrl_rl_for_training\n"));
  EXPECT_THAT(text(), HasSubstr("PartitionName=plexrl Nodes=node[1-4],big1 Default=NO State=UP "
                                "OverSubscribe=NO\n"));
  EXPECT_THAT(text(), HasSubstr("NodeName=node[1-4],big1 Name=plexrl_mem Count=8000 "
                                "Flags=CountOnly\n"));
}

TEST(SlurmText, HasWhatTheGrantRestsOn) {
  EXPECT_THAT(text(), HasSubstr("PrologFlags=Alloc\n"));
  EXPECT_THAT(text(), HasSubstr("JobSubmitPlugins=plexrl\n"));
  EXPECT_THAT(text(), HasSubstr("optional /usr/lib/slurm-wlm/spank_plexrl.so "
                                "socket=/run/plexrl/plexrld.sock\n"));
}

std::string text_of(const SiteConfig& config) {
  const auto result = slurm_text(config, machine(), kOptions);
  EXPECT_TRUE(result) << result.error().to_string();
  return result ? *result : "";
}

TEST(SlurmText, FitsTheUnitToAnotherUserAndOtherFolders) {
  EXPECT_THAT(text(), Not(AnyOf(HasSubstr("User="), HasSubstr("ReadWritePaths="),
                                HasSubstr("ListenStream="))));
  SiteConfig config = site();
  config.daemon.user = "llm";
  config.daemon.run_dir = "/run/llm";
  config.daemon.state_dir = "/local/llm";
  const std::string other = text_of(config);
  EXPECT_THAT(other, HasSubstr("M\nUser=llm\nGroup=\nReadWritePaths=/run/llm\n"
                               "ReadWritePaths=/local/llm\n"));
  EXPECT_THAT(other, HasSubstr("[Socket]\nListenStream=\nListenStream=/run/llm/plexrld.sock\n"));
  EXPECT_THAT(other, HasSubstr("spank_plexrl.so socket=/run/llm/plexrld.sock\n"));
}

TEST(SlurmText, NamesTheSocketOfHttpByTcp) {
  EXPECT_THAT(text(), Not(HasSubstr("plexrld-http.socket")));
  SiteConfig config = site();
  config.daemon.http_address = "127.0.0.1:585";
  EXPECT_THAT(text_of(config), HasSubstr("systemctl enable --now plexrld-http.socket"));
  EXPECT_THAT(text_of(config), Not(HasSubstr("ListenStream=")));
  config.daemon.http_address = "127.0.0.9:80";
  EXPECT_THAT(text_of(config), HasSubstr("[Socket]\nListenStream=\nListenStream=127.0.0.9:80\n"));
}

// Without slurmdbd the line stops slurmctld.
TEST(SlurmText, TresLinesOnlyWithAccounting) {
  EXPECT_THAT(text(), Not(HasSubstr("AccountingStorageTRES")));
  SlurmTextOptions options = kOptions;
  options.accounting = true;
  EXPECT_THAT(text(options), HasSubstr("AccountingStorageTRES=gres/plexrl,gres/plexrl_mem\n"));
}

TEST(SlurmText, SaysWhenNothingIsLeftForJobs) {
  Machine small = machine();
  small.cores.resize(3);
  EXPECT_THAT(slurm_text(site(), small, kOptions).error().text(),
              HasSubstr("none is left for jobs"));
  small = machine();
  small.memory_mib = 14096;
  EXPECT_EQ(slurm_text(site(), small, kOptions).error().code(), Code::NO_CAPACITY);
}

TEST(Machine, ListsOfNumbersAreShort) {
  EXPECT_EQ(number_list({}), "");
  EXPECT_EQ(number_list({5}), "5");
  EXPECT_EQ(number_list({3, 1, 2, 7, 9, 8}), "1-3,7-9");
}

TEST(Machine, ThisOneHasCoresAndMemory) {
  const auto here = detect_machine();
  ASSERT_TRUE(here) << here.error().to_string();
  EXPECT_FALSE(here->cores.empty());
  EXPECT_FALSE(here->cores.front().cpus.empty());
  EXPECT_GT(here->memory_mib, 0U);
}

}  // namespace
}  // namespace plexrl::config
