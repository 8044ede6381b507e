// SPDX-License-Identifier: Apache-2.0
#include "profile_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "slurm/profile_file.h"

namespace plexrl::job_submit {
namespace {

using ::testing::HasSubstr;

constexpr TimePoint kNow{1};

class Profiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-profiles-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    path_ = top_ + "/profiles";
  }
  void TearDown() override { std::filesystem::remove_all(top_); }
  void write(const std::string& lines) {
    ASSERT_TRUE(slurm::write_profiles(path_, "plexrl-profiles 1\n" + lines).ok());
  }

  std::string top_, path_;
};

TEST_F(Profiles, NoFileIsNoTrouble) {
  ProfileCache cache(path_);
  EXPECT_TRUE(cache.look(kNow).empty());
  EXPECT_EQ(cache.take_news(), "");
}

TEST_F(Profiles, AreReadAgainWhenTheFileChanged) {
  ProfileCache cache(path_);
  write("1 rl lora tiny a 1 20 10 10\n");
  ASSERT_EQ(cache.look(kNow).size(), 1U);
  EXPECT_EQ(cache.look(kNow).begin()->second.busy_percent, 20U);
  write("1 rl lora tiny a 2 30 10 20\n");
  EXPECT_EQ(cache.look(kNow).begin()->second.busy_percent, 30U);
  std::filesystem::remove(path_);
  EXPECT_TRUE(cache.look(kNow).empty());
  EXPECT_EQ(cache.take_news(), "");
}

TEST_F(Profiles, BadLinesAreToldOnce) {
  ProfileCache cache(path_);
  write("1 rl lora tiny a 1 20 10 10\nnonsense\n\x01\xff\n");
  EXPECT_EQ(cache.look(kNow).size(), 1U);
  EXPECT_THAT(cache.take_news(),
              HasSubstr("2 lines are no profiles and are ignored, the first is line 3"));
  EXPECT_EQ(cache.look(kNow).size(), 1U);
  EXPECT_EQ(cache.take_news(), "");
}

TEST_F(Profiles, ABadFileLeavesTheLastGoodOneInUse) {
  ProfileCache cache(path_);
  write("1 rl lora tiny a 1 20 10 10\n");
  ASSERT_EQ(cache.look(kNow).size(), 1U);
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  EXPECT_EQ(cache.look(kNow).size(), 1U);
  EXPECT_THAT(cache.take_news(), HasSubstr("chmod go-w"));
  EXPECT_EQ(cache.look(kNow).size(), 1U);
  EXPECT_EQ(cache.take_news(), "");
  ASSERT_TRUE(slurm::write_profiles(path_, "other\n").ok());
  EXPECT_EQ(cache.look(kNow).size(), 1U);
  EXPECT_THAT(cache.take_news(), HasSubstr("first line"));
}

// The stat of the file does not change when a folder above it does.
TEST_F(Profiles, ABadFolderIsLookedAtAgain) {
  ProfileCache cache(path_);
  write("1 rl lora tiny a 1 20 10 10\n");
  ASSERT_EQ(::chmod(top_.c_str(), 0777), 0);
  EXPECT_TRUE(cache.look(kNow).empty());
  ASSERT_EQ(::chmod(top_.c_str(), 0755), 0);
  EXPECT_TRUE(cache.look(kNow).empty());
  EXPECT_EQ(cache.look(kNow + Duration{6 * kSecond.ns}).size(), 1U);
}

}  // namespace
}  // namespace plexrl::job_submit
