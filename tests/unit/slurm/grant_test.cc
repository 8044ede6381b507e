// SPDX-License-Identifier: Apache-2.0
#include "slurm/grant.h"

#include <gtest/gtest.h>

namespace plexrl::slurm {
namespace {

Grant example() { return {"rl", 50, 1234, "lora", 16, 1500, {"tiny", "judge-v1.2"}, ""}; }

TEST(Grant, TextHasAFixedForm) {
  EXPECT_EQ(format_grant(example()),
            "v1:pool=rl:share=50:mem=1234:mode=lora:rank=16:slowdown=1500:models=tiny,judge-v1.2");
}

TEST(Grant, RoundTrip) {
  for (const Grant& grant : {example(), Grant{"p", 100, 0, "full", 0, 0, {"m"}, ""},
                             Grant{"p", 1, 1ULL << 30, "none", 0, 100000, {"m"}, ""},
                             Grant{"p", 1, 1, "none", 0, 0, {"m"}, "", {"openai"}},
                             Grant{"p", 1, 1, "none", 0, 0, {"m"}, "x", {"tinker", "openai"}},
                             Grant{"p", 1, 1, "none", 0, 0, {"m", "n"}, "run_1.sh"}}) {
    const auto parsed = parse_grant(format_grant(grant));
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    EXPECT_EQ(*parsed, grant);
  }
}

TEST(Grant, RefusesWhatTheHookWouldNotWrite) {
  const char* bad[] = {
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:name=",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:name=a b",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:name=a:b=1",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:env=",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:env=none",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:env=openai,tinker",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:env=tinker,tinker",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:env=a,b,c,d,e,f,g,h,i,j",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:name=a:env=openai",
      "",
      "rl",
      "v2:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m",
      "v1:share=50:pool=rl:mem=1:mode=full:rank=0:slowdown=0:models=m",
      "v1:pool=:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m",
      "v1:pool=r/l:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m",
      "v1:pool=rl:share=0:mem=1:mode=full:rank=0:slowdown=0:models=m",
      "v1:pool=rl:share=101:mem=1:mode=full:rank=0:slowdown=0:models=m",
      "v1:pool=rl:share=050:mem=1:mode=full:rank=0:slowdown=0:models=m",
      "v1:pool=rl:share=-5:mem=1:mode=full:rank=0:slowdown=0:models=m",
      "v1:pool=rl:share=50:mem=99999999999999999999:mode=full:rank=0:slowdown=0:models=m",
      "v1:pool=rl:share=50:mem=1:mode=half:rank=0:slowdown=0:models=m",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=8:slowdown=0:models=m",
      "v1:pool=rl:share=50:mem=1:mode=lora:rank=0:slowdown=0:models=m",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=999:models=m",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m,",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m,m",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=a,b,c,d,e,f,g,h,i",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m:x=1",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0:models=m\n",
      "v1:pool=rl:share=50:mem=1:mode=full:rank=0:slowdown=0",
  };
  for (const char* text : bad) EXPECT_FALSE(parse_grant(text)) << text;
  EXPECT_FALSE(parse_grant(std::string(5000, 'v')));
}

}  // namespace
}  // namespace plexrl::slurm
