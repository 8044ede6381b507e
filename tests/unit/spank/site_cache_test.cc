// SPDX-License-Identifier: Apache-2.0
#include "site_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/name_buffer.h"
#include "submitters.h"

namespace plexrl::job_submit {
namespace {

constexpr TimePoint kNow{1};

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-site-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    file_ = top_ + "/plexrl.yaml";
  }
  void TearDown() override { std::filesystem::remove_all(top_); }

  // Written beside and renamed, so that each version has an inode of its own.
  void write(const std::string& cluster) {
    std::ofstream(file_ + ".new") << "cluster: " << cluster << R"(
pools:
  - {name: p, partition: p, nodes: n1, models: m, host_memory_mib: 100, device_memory_mib: 2, activation_memory_mib: 1}
models:
  - {name: m, path: /m, parameters: 1, hidden_size: 1, layers: 1, intermediate_size: 1}
)";
    std::filesystem::rename(file_ + ".new", file_);
  }

  std::string top_;
  std::string file_;
};

TEST_F(Cache, ReadsAgainOnlyWhenTheFileChanged) {
  SiteCache cache(file_);
  write("one");
  const config::SiteConfig* site = cache.look(kNow);
  ASSERT_NE(site, nullptr);
  EXPECT_EQ(site->cluster, "one");
  EXPECT_EQ(cache.look(kNow), site);
  write("two");
  ASSERT_NE(cache.look(kNow), nullptr);
  EXPECT_EQ(cache.look(kNow)->cluster, "two");
  EXPECT_FALSE(cache.take_news());
}

TEST_F(Cache, KeepsTheLastGoodFileAndReportsOnce) {
  SiteCache cache(file_);
  write("one");
  ASSERT_NE(cache.look(kNow), nullptr);
  write("[");
  ASSERT_NE(cache.look(kNow), nullptr);
  EXPECT_EQ(cache.look(kNow)->cluster, "one");
  EXPECT_TRUE(cache.take_news());
  EXPECT_FALSE(cache.take_news());
  EXPECT_FALSE(cache.problem().ok());
  std::filesystem::remove(file_);
  EXPECT_NE(cache.look(kNow), nullptr);
  EXPECT_TRUE(cache.take_news());
}

TEST_F(Cache, NothingWithoutAFile) {
  SiteCache cache(file_);
  EXPECT_EQ(cache.look(kNow), nullptr);
  EXPECT_EQ(cache.problem().code(), Code::NOT_FOUND);
  write("late");
  ASSERT_NE(cache.look(kNow), nullptr);
  EXPECT_TRUE(cache.problem().ok());
}

TEST_F(Cache, RefusesAFileThatOthersMayWrite) {
  SiteCache cache(file_);
  write("one");
  std::filesystem::permissions(file_, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_EQ(cache.look(kNow), nullptr);
  EXPECT_EQ(cache.problem().code(), Code::PERMISSION);
}

// The advice of the message is followed: the folder changes, the file does not.
TEST_F(Cache, SeesThatAFolderWasMended) {
  namespace fs = std::filesystem;
  SiteCache cache(file_);
  write("one");
  fs::permissions(top_, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(cache.look(kNow), nullptr);
  EXPECT_TRUE(cache.take_news());
  EXPECT_EQ(cache.look(kNow + Duration{10 * kSecond.ns}), nullptr);
  EXPECT_FALSE(cache.take_news());
  fs::permissions(top_, fs::perms::others_write, fs::perm_options::remove);
  EXPECT_NE(cache.look(kNow + Duration{20 * kSecond.ns}), nullptr);
  EXPECT_TRUE(cache.problem().ok());
}

TEST_F(Cache, KnowsThePoolsOfOldWhenTheFileIsBrokenAtTheStart) {
  const std::string known = top_ + "/plexrl_pools";
  {
    SiteCache cache(file_, known);
    write("one");
    ASSERT_NE(cache.look(kNow), nullptr);
  }
  std::ofstream(file_) << "cluster: [";
  SiteCache next(file_, known);
  EXPECT_EQ(next.look(kNow), nullptr);
  EXPECT_TRUE(next.take_news());
  ASSERT_EQ(next.pools().pools.size(), 1U);
  EXPECT_NE(next.pools().pool_of_partition(next.pools().pools[0].partition), nullptr);
  slurm::JobRequest ordinary;
  EXPECT_TRUE(slurm::rewrite(ordinary, next.pools(), {}));
  ordinary.partition = next.pools().pools[0].partition;
  EXPECT_FALSE(slurm::rewrite(ordinary, next.pools(), {}));
  EXPECT_EQ(next.look(kNow + Duration{10 * kSecond.ns}), nullptr);
  std::ofstream(known) << "damaged\n";
  SiteCache damaged(file_, known);
  EXPECT_EQ(damaged.look(kNow), nullptr);
  EXPECT_TRUE(damaged.pools().pools.empty());
  EXPECT_NE(damaged.problem().text().find("plexrl_pools"), std::string::npos);
}

TEST_F(Cache, WorksWithoutAPlaceToRememberPools) {
  SiteCache cache(file_, top_ + "/missing/plexrl_pools");
  write("one");
  EXPECT_NE(cache.look(kNow), nullptr);
  EXPECT_TRUE(cache.take_news());
  EXPECT_NE(cache.problem().text().find("remembered"), std::string::npos);
}

TEST(Submitters, KnowsRootAndItsGroup) {
  Submitters known;
  const slurm::Submitter& root = known.get(0, TimePoint{1});
  EXPECT_EQ(root.user, "root");
  EXPECT_NE(std::find(root.groups.begin(), root.groups.end(), "root"), root.groups.end());
  EXPECT_EQ(&known.get(0, TimePoint{2}), &root);
}

TEST(Submitters, AUidWithoutANameHasNoGroups) {
  Submitters known;
  const slurm::Submitter& nobody = known.get(3999999999U, TimePoint{1});
  EXPECT_EQ(nobody.user, "");
  EXPECT_TRUE(nobody.groups.empty());
}

// As getgrgid_r(3) does for a group with very many members.
TEST(Submitters, GrowsTheBufferForALargeEntry) {
  std::vector<char> buffer(16);
  std::size_t wanted = 1 << 20;
  const auto call = [&](char*, std::size_t size) { return size < wanted ? ERANGE : 0; };
  EXPECT_EQ(with_growing_buffer(&buffer, call), 0);
  EXPECT_GE(buffer.size(), wanted);
  wanted = 1UL << 40;
  EXPECT_EQ(with_growing_buffer(&buffer, call), ERANGE);
  EXPECT_LE(buffer.size(), kMaxNameBuffer);
}

}  // namespace
}  // namespace plexrl::job_submit
