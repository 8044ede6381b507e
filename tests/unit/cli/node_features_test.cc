// SPDX-License-Identifier: Apache-2.0
#include "cli/node_features.h"

#include <gtest/gtest.h>

namespace plexrl::cli {
namespace {

using config::JobKind;
using Kinds = std::vector<JobKind>;

std::string node(const std::string& available, const std::string& active) {
  return "NodeName=n1 AvailableFeatures=" + available + " ActiveFeatures=" + active + " Gres=x\n";
}

constexpr const char* kBoth = "plexrl_rl_for_rollout,plexrl_rl_for_training";

TEST(NodeFeatures, AreUsedWhereTheSiteGaveThemOnly) {
  EXPECT_TRUE(has_pool_features("rl", node(std::string("ib,") + kBoth, "(null)")));
  EXPECT_FALSE(has_pool_features("rl", node("(null)", "(null)")));
  EXPECT_FALSE(has_pool_features("rl", node("ib,plexrl_rl_for_rollout", kBoth)));
  EXPECT_FALSE(has_pool_features("r", node(kBoth, kBoth)));
  EXPECT_FALSE(has_pool_features("rl", "NodeName=n1 State=IDLE\n"));
}

TEST(NodeFeatures, AKindIsWelcomeWhileNoJobOfTheNodeIsOfIt) {
  const Kinds both{JobKind::kRollout, JobKind::kTraining};
  EXPECT_EQ(welcome_kinds(""), both);
  EXPECT_EQ(welcome_kinds("(null)   \nof the site   \n"), both);
  EXPECT_EQ(welcome_kinds("(null)\nsite; plexrl: mostly rollout  \n"), Kinds{JobKind::kTraining});
  EXPECT_EQ(welcome_kinds("plexrl: mostly training\nplexrl: mostly rollout\n"), Kinds{});
}

TEST(NodeFeatures, AreChangedOnlyWhenTheyAreWrongAndOthersStay) {
  const auto wanted = [](const std::string& active, const Kinds& welcome) {
    return wanted_features("rl", node(kBoth, active), welcome).value_or("as it is");
  };
  const Kinds rollout{JobKind::kRollout}, both{JobKind::kRollout, JobKind::kTraining};
  EXPECT_EQ(wanted(kBoth, both), "as it is");
  EXPECT_EQ(wanted("ib,plexrl_rl_for_training,knl,plexrl_rl_for_rollout", rollout),
            "ib,knl,plexrl_rl_for_rollout");
  EXPECT_EQ(wanted("(null)", both), kBoth);
  EXPECT_EQ(wanted("", {}), "as it is");
  EXPECT_EQ(wanted("plexrl_rl_for_training", {}), "");
  EXPECT_EQ(wanted("plexrl_other_for_training", rollout),
            "plexrl_other_for_training,plexrl_rl_for_rollout");
}

}  // namespace
}  // namespace plexrl::cli
