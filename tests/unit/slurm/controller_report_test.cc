// SPDX-License-Identifier: Apache-2.0
#include "slurm/controller_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "slurm/whole_file.h"

namespace plexrl::slurm {
namespace {

class Reports : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-reports-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(top_); }
  std::string top_;
};

TEST_F(Reports, AreReadBackInOrderOfHosts) {
  const ControllerReport two{"ctl2", {"00ff", ""}, {"", "line one"}};
  ControllerReport one{"ctl1", {"00ff", "old"}, {"1", ""}};
  ASSERT_TRUE(write_report(top_, two).ok());
  ASSERT_TRUE(write_report(top_, one).ok());
  one.site.problem = "file:1: wrong\nfile:2: wrong";
  ASSERT_TRUE(write_report(top_, one).ok());
  std::ofstream(top_ + "/plexrl_pools") << "plexrl rl\n";
  one.site.problem = "file:1: wrong file:2: wrong";
  const auto reports = read_reports(top_);
  ASSERT_TRUE(reports) << reports.error().text();
  EXPECT_EQ(*reports, (std::vector<ControllerReport>{one, two}));
}

TEST_F(Reports, WhatIsNoneIsNamed) {
  EXPECT_EQ(read_reports(top_ + "/none").error().code(), Code::IO);
  EXPECT_FALSE(write_report(top_, {"../x", {}, {}}).ok());
  ASSERT_TRUE(write_report(top_, {"ctl", {}, {}}).ok());
  std::filesystem::rename(top_ + "/plexrl_seen.ctl", top_ + "/plexrl_seen.other");
  const auto reports = read_reports(top_);
  ASSERT_FALSE(reports);
  EXPECT_EQ(reports.error().code(), Code::CORRUPT);
  EXPECT_THAT(reports.error().text(), ::testing::HasSubstr("plexrl_seen.other"));
}

TEST_F(Reports, HashesDifferWhenFilesDo) {
  const std::string file = top_ + "/f";
  EXPECT_EQ(file_hash(file).error().code(), Code::NOT_FOUND);
  ASSERT_TRUE(replace_file(file, "", 0644).ok());
  EXPECT_EQ(file_hash(file).value(), "cbf29ce484222325");  // the offset basis
  ASSERT_TRUE(replace_file(file, "a", 0644).ok());
  EXPECT_EQ(file_hash(file).value(), "af63dc4c8601ec8c");  // published for "a"
}

}  // namespace
}  // namespace plexrl::slurm
