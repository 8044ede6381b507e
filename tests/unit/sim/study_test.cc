// SPDX-License-Identifier: Apache-2.0
#include "sim/study.h"

#include "unit/sim/sim_fixture.h"

namespace plexrl::sim {
namespace {

nlohmann::ordered_json document(const Workload& workload, const StudyOptions& options = {}) {
  const auto made = study(workload, options);
  EXPECT_TRUE(made) << made.error().to_string();
  return made ? *made : nlohmann::ordered_json();
}

// Saving = b - (s - 1)(1 - b) for two patient jobs on one training pool.
TEST(Study, SavingFollowsFromBoundAndSlowdown) {
  Workload workload = small_workload(8);
  workload.published.push_back({"device_hours_saved.split-async", 0.30, "a test"});
  const auto json = document(workload);
  const double bound = json["closed_form_bound"];
  const double slowdown = json["mean_slowdown"];
  EXPECT_NEAR(bound, 8.0 / 24, 1e-4);
  EXPECT_NEAR(json["device_hours_saved"]["split-async"], bound - (slowdown - 1) * (1 - bound),
              0.03);
  EXPECT_EQ(json["device_hours_saved"]["split-async"], json["device_hours_saved"]["isolated"])
      << "the jobs are split and one step off themselves";
  EXPECT_EQ(json["published"][0]["ours"], json["device_hours_saved"]["split-async"]);
  // R/T = 1 / (2 * 0.30) - 1
  EXPECT_NEAR(json["published"][0]["break_even_rollout_per_train"], 0.6667, 1e-3);
}

TEST(Study, SensitivityRunsTheChangedWorkload) {
  Workload workload = small_workload(4);
  workload.sensitivity.push_back({"jobs.rl.rollout_gpus", {8}, {}});
  workload.sensitivity.push_back({"jobs.rl.parameters_b", {}, {1000}});
  const auto json = document(workload);
  ASSERT_EQ(json["sensitivity"].size(), 2U);
  EXPECT_NEAR(json["sensitivity"][0]["closed_form_bound"], 0.25, 1e-4);
  EXPECT_TRUE(json["sensitivity"][1].contains("impossible"));
}

TEST(Study, LoadsRankAndGap) {
  Workload workload = small_workload(60, 0);
  workload.loads = {1.2, 2};
  workload.load = 2;
  StudyOptions options;
  options.compare = {"spread-backfill", "fifo", "fifo/pack"};
  const auto json = document(workload, options);
  EXPECT_LT(json["completion_by_load"]["2"], 1);
  EXPECT_EQ(json["completion_by_load"]["2"], json["completion_vs_isolated"]);
  EXPECT_GE(json["rank"], 1);
  EXPECT_LE(json["rank"], 4);
  EXPECT_GE(json["offline_gap"], 0);
  ASSERT_EQ(json["compare"].size(), 3U);
  EXPECT_EQ(json["compare"][0]["placement"], "spread-backfill");
  EXPECT_EQ(json["compare"][1]["policy"], "fifo");
  EXPECT_EQ(json["compare"][2]["placement"], "pack");
}

TEST(Study, TheSameSeedGivesTheSameDocument) {
  const Workload workload = small_workload(6, 0);
  StudyOptions options;
  options.choice.placement = "pack";
  EXPECT_EQ(document(workload, options).dump(), document(workload, options).dump());
  StudyOptions other = options;
  other.seed = 9;
  EXPECT_NE(document(workload, options).dump(), document(workload, other).dump());
}

TEST(Study, SaysWhatIsWrong) {
  StudyOptions options;
  options.compare = {"best"};
  EXPECT_EQ(study(small_workload(2), options).error().code(), Code::INVALID_ARGUMENT);
  options.compare = {"fifo/best"};
  EXPECT_EQ(study(small_workload(2), options).error().code(), Code::INVALID_ARGUMENT);
  options.compare.clear();
  options.progress = [](const std::string&, double) { return false; };
  EXPECT_EQ(study(small_workload(200), options).error().code(), Code::CANCELLED);
}

// No schedule may beat the bound; the least sharing is far above it.
TEST(Study, TheOfflineBoundIsALowerBound) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U})
    for (const std::string_view placement : core::Placer::policies()) {
      Workload workload = small_workload(40, seed % 2 == 0 ? 0 : 1);
      workload.pools[0].gpus = 24;
      workload.interarrival_s = {Distribution::Kind::kExponential, 200};
      RunOptions chosen = options(std::string(placement));
      chosen.seed = seed;
      const RunStats stats = run(workload, chosen);
      EXPECT_GE(stats.makespan_s(), stats.offline_makespan_s()) << placement << " seed " << seed;
    }
}

}  // namespace
}  // namespace plexrl::sim
