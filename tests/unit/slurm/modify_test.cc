// SPDX-License-Identifier: Apache-2.0
#include "slurm/modify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "submission_cases.h"

namespace plexrl::slurm {
namespace {

config::SiteConfig site() {
  auto site = config::parse_site_config(kCasesSite, "cases");
  EXPECT_TRUE(site) << site.error().text();
  return site ? *site : config::SiteConfig{};
}

Status checked(const Change& change, bool privileged) {
  ModifyRequest request;
  change.change(&request);
  request.privileged = privileged;
  return check_modify(request, change.pool_job ? "rl" : "", site());
}

TEST(Modify, UsersMayChangeWhatTheTableSays) {
  for (const Change& change : changes()) {
    const Status status = checked(change, false);
    EXPECT_EQ(status.code(), change.says == nullptr ? Code::OK : Code::PERMISSION) << change.name;
    if (change.says != nullptr) {
      EXPECT_THAT(status.text(), ::testing::HasSubstr(change.says)) << change.name;
    }
  }
}

TEST(Modify, AdministratorsMayChangeEverything) {
  for (const Change& change : changes()) EXPECT_TRUE(checked(change, true).ok()) << change.name;
}

}  // namespace
}  // namespace plexrl::slurm
