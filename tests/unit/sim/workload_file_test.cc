// SPDX-License-Identifier: Apache-2.0
#include "sim/workload_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "sim/workload_keys.h"

namespace plexrl::sim {
namespace {

constexpr const char* kGood = R"(
name: small
jobs_total: 3
interarrival_s: {kind: exponential, mean: 20}
pools:
  - {name: all, gpus: 16, host_gb_per_node: 1500}
jobs:
  - name: rl
    rollout_pool: all
    train_pool: all
    rollout_gpus: 4
    train_gpus: 8
    parameters_b: 7
    rollout_s: {kind: longest, mean: 300, sigma: 0.99, samples: 512, max: 8}
    train_s: 40
published:
  - {key: device_hours_saved.split-async, value: 0.31, source: a paper}
sensitivity:
  - {key: jobs.rl.rollout_gpus, values: [2, 4]}
  - {key: pools.*.copy_gb_per_s, factors: [0.5]}
)";

std::string errors_of(const std::string& text) {
  const auto workload = parse_workload(text, "w.yaml");
  return workload ? "" : workload.error().text();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(WorkloadFile, IsRead) {
  const auto workload = parse_workload(kGood, "w.yaml");
  ASSERT_TRUE(workload) << workload.error().to_string();
  EXPECT_EQ(workload->pools.at(0).gpus, 16U);
  EXPECT_EQ(workload->pools[0].host_gb_per_node, 1500);
  EXPECT_EQ(workload->jobs.at(0).lag, 1U);
  EXPECT_NEAR(workload->jobs[0].rollout_s.mean(), 300, 0.1);
  EXPECT_NEAR(workload->jobs[0].rollout_s.quantile(0.9999) / workload->jobs[0].rollout_s.scale, 8,
              0.01);
  EXPECT_EQ(workload->sensitivity.at(0).values, (std::vector<double>{2, 4}));
}

TEST(WorkloadFile, AllErrorsAreReportedWithTheirLines) {
  std::string text = replaced(kGood, "train_gpus: 8", "train_gpu: 8");
  text = replaced(text, "gpus: 16,", "gpus: many,");
  text = replaced(text, "sigma: 0.99", "sigma: 9");
  const std::string errors = errors_of(text);
  EXPECT_NE(errors.find("w.yaml:6: pools.gpus: expected a number"), std::string::npos) << errors;
  EXPECT_NE(errors.find("w.yaml:12: jobs.train_gpu: unknown key; did you mean 'train_gpus'?"),
            std::string::npos)
      << errors;
  EXPECT_NE(errors.find("w.yaml:14: jobs.rollout_s: sigma must be between 0 and 5"),
            std::string::npos)
      << errors;
  EXPECT_NE(errors.find("jobs.train_gpus: missing"), std::string::npos) << errors;
}

TEST(WorkloadFile, RefusesWhatCannotBe) {
  EXPECT_NE(errors_of(""), "");
  EXPECT_NE(errors_of("[1, 2]"), "");
  EXPECT_NE(errors_of("name: x"), "");
  EXPECT_NE(errors_of(replaced(kGood, "gpus: 16", "gpus: 15")), "");
  EXPECT_NE(errors_of(replaced(kGood, "gpus: 16", "gpus: 1e99")), "");
  EXPECT_NE(errors_of(replaced(kGood, "jobs_total: 3", "jobs_total: 2.5")), "");
  EXPECT_NE(errors_of(replaced(kGood, "train_s: 40", "train_s: [1, 2]")), "");
  EXPECT_NE(errors_of(replaced(kGood, "train_s: 40", "train_s: {kind: normal, mean: 3}")), "");
  EXPECT_NE(errors_of(replaced(kGood, "train_s: 40", "train_s: .nan")), "");
  EXPECT_NE(errors_of(replaced(kGood, "mean: 20", "max: 20")), "");
  EXPECT_NE(errors_of(replaced(kGood, "train_pool: all", "train_pool: none")), "");
  EXPECT_NE(errors_of(replaced(kGood, "parameters_b: 7", "parameters_b: 7000")), "");
  EXPECT_NE(errors_of(replaced(kGood, "jobs.rl.rollout_gpus", "jobs.other.rollout_gpus")), "");
  EXPECT_NE(errors_of(replaced(kGood, "rollout_gpus: 4", "rollout_gpus: 0")), "")
      << "one group and a lag of 1";
}

TEST(WorkloadFile, RefusesWhatWouldTakeHours) {
  std::string text = replaced(kGood, "jobs_total: 3", "jobs_total: 1000000");
  EXPECT_NE(errors_of(text).find("about 100000000 steps of all jobs"), std::string::npos)
      << errors_of(text);
  text = replaced(text, "train_s: 40", "train_s: 40\n    steps: 10");
  EXPECT_EQ(errors_of(text), "");
  EXPECT_NE(errors_of(replaced(text, "steps: 10", "steps: 1000000000")), "");
}

TEST(WorkloadKeys, OverrideByPath) {
  auto workload = parse_workload(kGood, "w.yaml").value();
  EXPECT_TRUE(override_key(workload, "jobs.rl.rollout_gpus", 6, false).ok());
  EXPECT_EQ(workload.jobs[0].rollout_gpus, 6U);
  EXPECT_TRUE(override_key(workload, "pools.*.copy_gb_per_s", 0.5, true).ok());
  EXPECT_EQ(workload.pools[0].copy_gb_per_s, 10);
  EXPECT_TRUE(override_key(workload, "jobs.*.rollout_s", 2, true).ok());
  EXPECT_NEAR(workload.jobs[0].rollout_s.mean(), 600, 0.2);
  EXPECT_TRUE(override_key(workload, "jobs.rl.train_s", 7, false).ok());
  EXPECT_EQ(workload.jobs[0].train_s.mean(), 7);
  EXPECT_FALSE(override_key(workload, "jobs.rl.name", 7, false).ok());
  EXPECT_FALSE(override_key(workload, "jobs.rl", 7, false).ok());
  EXPECT_FALSE(override_key(workload, "trace", 7, false).ok());
}

TEST(WorkloadFile, EveryShippedOneIsRead) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PLEXRL_SOURCE_DIR "/tests/sim")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const auto workload = load_workload(entry.path());
    EXPECT_TRUE(workload) << workload.error().to_string();
    if (workload) {
      EXPECT_EQ(workload->name, entry.path().stem());
    }
  }
  EXPECT_GE(count, 7);
}

TEST(WorkloadFile, FilesThatAreNotThere) {
  EXPECT_EQ(load_workload("/nonexistent.yaml").error().code(), Code::NOT_FOUND);
}

}  // namespace
}  // namespace plexrl::sim
