// SPDX-License-Identifier: Apache-2.0
#include "cli/env_command.h"

#include <gtest/gtest.h>

namespace plexrl::cli {
namespace {

TEST(Env, TakesOnlyOurVariablesInOrder) {
  const char* environment[] = {"HOME=/root",     "PLEXRL_TOKEN=abc",     "PLEXRLISH=1",
                               "PLEXRL_NOVALUE", "PLEXRL_SOCKET=/run/s", nullptr};
  const EnvPairs expected = {{"PLEXRL_SOCKET", "/run/s"}, {"PLEXRL_TOKEN", "abc"}};
  EXPECT_EQ(plexrl_pairs(environment), expected);
}

TEST(Env, TakesThePairsOfClientsThatAreMarked) {
  const char* environment[] = {
      "OPENAI_API_KEY=mine", "TINKER_API_KEY=tml-abc",
      "SLURM_GRES=none",     "PLEXRL_MARKED=SLURM_GRES,TINKER_API_KEY,HOME",
      "HOME=/root",          nullptr};
  const EnvPairs expected = {{"PLEXRL_MARKED", "SLURM_GRES,TINKER_API_KEY,HOME"},
                             {"TINKER_API_KEY", "tml-abc"}};
  EXPECT_EQ(plexrl_pairs(environment), expected);
}

TEST(Env, QuotesForTheShell) {
  EXPECT_EQ(shell_exports({{"PLEXRL_X", "a'b $(id)"}}), "export PLEXRL_X='a'\\''b $(id)'\n");
}

}  // namespace
}  // namespace plexrl::cli
