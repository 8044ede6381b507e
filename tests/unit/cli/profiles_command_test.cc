// SPDX-License-Identifier: Apache-2.0
#include "cli/profiles_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexrl::cli {
namespace {

using ::testing::HasSubstr;

nlohmann::json entry(const char* name, unsigned runs, unsigned busy) {
  return {{"uid", 1001},
          {"user", "alice"},
          {"pool", "rl"},
          {"name", name},
          {"train_mode", "lora"},
          {"models", {"tiny", "judge"}},
          {"runs", runs},
          {"busy_percent", busy},
          {"rollout_percent", busy / 2},
          {"training_percent", busy / 3},
          {"share_percent", 25}};
}

TEST(Profiles, AreShownAsATable) {
  const std::string text = render_profiles({{"profiles", {entry("grpo", 4, 23)}}});
  EXPECT_THAT(text, HasSubstr("NAME  USER   POOL  TRAIN  MODELS"));
  EXPECT_THAT(text, HasSubstr("grpo  alice  rl    lora   tiny,judge"));
  EXPECT_THAT(text, HasSubstr("23%"));
}

TEST(Profiles, OfSeveralNodesAreMerged) {
  slurm::Profiles profiles;
  ASSERT_TRUE(
      merge_profiles({{"profiles", {entry("a", 4, 20), entry("b", 1, 90)}}}, &profiles).ok());
  ASSERT_TRUE(merge_profiles({{"profiles", {entry("a", 2, 60)}}}, &profiles).ok());
  ASSERT_TRUE(merge_profiles({{"profiles", {entry("b", 5, 30)}}}, &profiles).ok());
  const slurm::ProfileKey a{1001, "rl", "lora", {"tiny", "judge"}, "a"};
  slurm::ProfileKey b = a;
  b.name = "b";
  EXPECT_EQ(profiles, (slurm::Profiles{{a, {6, 60, 30, 20}}, {b, {6, 90, 45, 30}}}));
}

TEST(Profiles, OtherDocumentsAddNothing) {
  slurm::Profiles profiles;
  ASSERT_TRUE(merge_profiles({{"profiles", {entry("a", 4, 20)}}}, &profiles).ok());
  const slurm::Profiles before = profiles;
  nlohmann::json missing = entry("b", 1, 20);
  missing.erase("uid");
  nlohmann::json negative = entry("b", 1, 20);
  negative["models"] = nlohmann::json::array();
  for (const nlohmann::json& bad :
       {nlohmann::json::object(), nlohmann::json::array(), nlohmann::json(1),
        nlohmann::json{{"profiles", {entry("b", 1, 20), missing}}},
        nlohmann::json{{"profiles", {negative}}},
        nlohmann::json{{"profiles", {entry("b", 1, 101)}}},
        nlohmann::json{
            {"profiles", {entry("b", 1, 20), entry("x 1 1 1 1\n0 rl lora tiny", 1, 20)}}}}) {
    EXPECT_EQ(merge_profiles(bad, &profiles).code(), Code::INVALID_ARGUMENT) << bad;
    EXPECT_EQ(profiles, before);
  }
}

}  // namespace
}  // namespace plexrl::cli
