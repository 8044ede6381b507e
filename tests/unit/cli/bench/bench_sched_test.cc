// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_sched.h"

#include <gtest/gtest.h>

#include "core/placement.h"

namespace plexrl::cli {
namespace {

TEST(BenchSched, HasARowForEveryPolicy) {
  BenchSchedOptions options;
  options.tenants = 20;
  options.ops = 60;
  options.steps = 200;
  options.jobs = 10;
  options.nodes = 4;
  const auto rows = bench_sched(options);
  ASSERT_TRUE(rows.has_value()) << rows.error().to_string();
  ASSERT_EQ(rows->size(), 4 + core::Placer::policies().size());
  for (const auto& row : *rows) {
    if (row.contains("placement")) {
      EXPECT_GT(row["placed"], 0) << row.dump();
      EXPECT_GT(row["placement_ms"], 0.0) << row.dump();
      continue;
    }
    EXPECT_GE(row["steps"], 200) << row.dump();
    EXPECT_GT(row["step_us_p50"], 0.0) << row.dump();
    EXPECT_LE(row["step_us_p50"], row["step_us_p99"]) << row.dump();
    EXPECT_LE(row["step_us_p99"], row["step_us_max"]) << row.dump();
  }
}

TEST(BenchSched, OptionsThatMeasureNothingAreRefused) {
  BenchSchedOptions options;
  options.ops = options.tenants - 1;
  EXPECT_EQ(bench_sched(options).error().code(), Code::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace plexrl::cli
