// SPDX-License-Identifier: Apache-2.0
#include "slurm/marked_env.h"

#include <gtest/gtest.h>

namespace plexrl::slurm {
namespace {

using Env = std::vector<std::string>;

Env stripped(Env environment) {
  strip_marked(&environment);
  return environment;
}

TEST(MarkedEnv, OnlyKnownNamesAreMarked) {
  EXPECT_EQ(marked_names("PLEXRL_TOKEN,PATH,LD_PRELOAD"), Env{"PLEXRL_TOKEN"});
  EXPECT_EQ(marked_names(""), Env{});
  EXPECT_EQ(marked_names("XPLEXRL_TOKEN,PLEXRL_TOKENX"), Env{});
  EXPECT_EQ(marked_names("SLURM_GRES,PLEXRL_SOCKET"), (Env{"PLEXRL_SOCKET", "SLURM_GRES"}));
}

TEST(MarkedEnv, WhatAnOuterJobLeftGoes) {
  EXPECT_EQ(stripped({"PATH=/bin", "PLEXRL_TOKEN=abc", "PLEXRL_SOCKET=/s", "SLURM_GRES=none",
                      "PLEXRL_MARKED=PLEXRL_SOCKET,PLEXRL_TOKEN,SLURM_GRES",
                      "SLURM_SPANK__SLURM_SPANK_OPTION_plexrl_plexrl_pool=v1:x"}),
            Env{"PATH=/bin"});
}

TEST(MarkedEnv, ThePairsOfClientsGoWhereTheyAreOurs) {
  EXPECT_EQ(stripped({"TINKER_API_KEY=tml-x", "TINKER_BASE_URL=u", "OPENAI_API_KEY=mine",
                      "PLEXRL_MARKED=TINKER_BASE_URL,TINKER_API_KEY"}),
            Env{"OPENAI_API_KEY=mine"});
}

TEST(MarkedEnv, WhatTheUserSetStays) {
  const Env own{"PLEXRL_TOKEN=mine", "SLURM_GRES=gpu:1", "HOME=/h"};
  EXPECT_EQ(stripped(own), own);
  EXPECT_EQ(stripped({"SLURM_GRES=gpu:1", "PLEXRL_MARKED=SLURM_GRES"}), Env{"SLURM_GRES=gpu:1"});
}

TEST(MarkedEnv, OddEntriesDoNoHarm) {
  const Env odd{"", "=", "NOVALUE", "PLEXRL_MARKEDX=PLEXRL_TOKEN"};
  EXPECT_EQ(stripped(odd), odd);
  EXPECT_EQ(stripped({"PLEXRL_MARKED", "A=1"}), Env{"A=1"});
}

TEST(MarkedEnv, GpuVariablesGo) {
  Env environment{"SLURM_GPUS=2", "SLURM_GPUS_PER_NODE=2", "SLURM_GPU_BIND=none", "X=SLURM_GPUS"};
  strip_gpu_variables(&environment);
  EXPECT_EQ(environment, (Env{"SLURM_GPU_BIND=none", "X=SLURM_GPUS"}));
}

TEST(MarkedEnv, StepGresIsAddedAndMarkedOnce) {
  Env environment{"A=1"};
  add_step_gres(&environment);
  EXPECT_EQ(environment, (Env{"A=1", "SLURM_GRES=none", "PLEXRL_MARKED=SLURM_GRES"}));
  Env own{"SLURM_GRES=nvme:1"};
  add_step_gres(&own);
  EXPECT_EQ(own, Env{"SLURM_GRES=nvme:1"});
}

}  // namespace
}  // namespace plexrl::slurm
