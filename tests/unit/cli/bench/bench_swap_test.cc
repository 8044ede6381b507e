// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_swap.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/bench/swap_switch.h"

namespace plexrl::cli {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(BenchSwap, SizesGoUpInFours) {
  EXPECT_EQ(swap_sizes(20 * kMiB), (std::vector<std::uint64_t>{kMiB, 4 * kMiB, 16 * kMiB}));
  EXPECT_EQ(swap_sizes(4096 * kMiB).size(), 7U);
}

TEST(BenchSwap, RowsAreFlatAndComplete) {
  BenchSwapOptions options;
  options.max_mib = 4;
  options.switches = false;
  const auto rows = bench_swap(options);
  ASSERT_TRUE(rows.has_value()) << rows.error().to_string();
  std::set<std::string> paths;
  for (const auto& row : *rows) {
    paths.insert(row.at("path").get<std::string>());
    EXPECT_GE(row.at("bytes").get<std::uint64_t>(), kMiB);
    EXPECT_GT(row.at("gbps").get<double>(), 0);
    EXPECT_GT(row.at("raw_gbps").get<double>(), 0);
    EXPECT_GT(row.at("ratio").get<double>(), 0);
    if (row.contains("huge_pages")) {
      EXPECT_LE(row["huge_pages"].get<double>(), 1);
    } else {
      EXPECT_FALSE(row.at("method").get<std::string>().empty());
    }
    for (const auto& value : row) EXPECT_TRUE(value.is_primitive());
  }
  EXPECT_EQ(rows->size(), 8U);
  EXPECT_EQ(paths, (std::set<std::string>{"device-host", "host-device", "host-disk", "disk-host"}));
}

TEST(BenchSwap, WithoutADirectoryThereIsAReason) {
  BenchSwapOptions options;
  options.max_mib = 1;
  options.switches = false;
  options.directory = "/nonexistent/folder";
  EXPECT_EQ(bench_swap(options).error().code(), Code::IO);
}

TEST(BenchSwap, TheRatioOfASwitchIsToTheRawCopy) {
  SwitchCost cost;
  EXPECT_DOUBLE_EQ(cost.exposed_ratio(), 0);
  cost.exposed_s = 0.3;
  cost.raw_copy_s = 0.2;
  EXPECT_DOUBLE_EQ(cost.exposed_ratio(), 1.5);
}

TEST(BenchSwap, SenselessOptionsAreRefused) {
  BenchSwapOptions options;
  options.max_mib = 0;
  EXPECT_EQ(bench_swap(options).error().code(), Code::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace plexrl::cli
