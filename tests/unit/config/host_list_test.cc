// SPDX-License-Identifier: Apache-2.0
#include "config/host_list.h"

#include <gtest/gtest.h>

namespace plexrl::config {
namespace {

using Names = std::vector<std::string>;

Names hosts(std::string_view expression) {
  const auto names = expand_hosts(expression);
  EXPECT_TRUE(names) << names.error().to_string();
  return names ? *names : Names{};
}

TEST(HostList, PlainNamesAndRanges) {
  EXPECT_EQ(hosts("node1"), Names{"node1"});
  EXPECT_EQ(hosts("a,b"), (Names{"a", "b"}));
  EXPECT_EQ(hosts("node[1-4,7]"), (Names{"node1", "node2", "node3", "node4", "node7"}));
  EXPECT_EQ(hosts("n[1-2],login"), (Names{"n1", "n2", "login"}));
}

TEST(HostList, KeepsLeadingZeros) {
  EXPECT_EQ(hosts("n[08-11]"), (Names{"n08", "n09", "n10", "n11"}));
}

TEST(HostList, SeveralBracketsAreAProduct) {
  EXPECT_EQ(hosts("r[1-2]n[1-2]x"), (Names{"r1n1x", "r1n2x", "r2n1x", "r2n2x"}));
}

TEST(HostList, RefusesWhatSlurmWouldNotWrite) {
  for (const char* bad : {"", ",", "a,", "n[", "n[]", "n[1", "n[2-1]", "n[a]", "n[1-]", "n]", "n m",
                          "n[1,,2]", "n[-1]", "n[1-2-3]", "n[99999999999]", "a;b", "../x"}) {
    const auto names = expand_hosts(bad);
    EXPECT_FALSE(names) << bad;
  }
}

TEST(HostList, IsBounded) {
  EXPECT_EQ(expand_hosts("n[1-999999999]").error().code(), Code::TOO_LARGE);
  EXPECT_EQ(expand_hosts("n[1-999]m[1-999]o[1-999]").error().code(), Code::TOO_LARGE);
}

}  // namespace
}  // namespace plexrl::config
