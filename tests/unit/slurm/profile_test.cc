// SPDX-License-Identifier: Apache-2.0
#include "slurm/profile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "slurm/profile_file.h"

namespace plexrl::slurm {
namespace {

Profiles example() {
  return {{{1001, "rl", "lora", {"tiny"}, "grpo"}, {4, 23, 15, 6}},
          {{1001, "rl", "full", {"tiny", "judge-v1.2"}, "run.sh"}, {1, 100, 0, 100}},
          {{0, "rl", "none", {"tiny"}, "x"}, {1000000, 1, 1, 0}}};
}

TEST(Profile, RoundTrip) {
  const ProfilesText text = format_profiles(example());
  EXPECT_EQ(text.left_out, 0U);
  EXPECT_EQ(text.text,
            "plexrl-profiles 1\n0 rl none tiny x 1000000 1 1 0\n1001 rl lora tiny grpo 4 23 15 6\n"
            "1001 rl full tiny,judge-v1.2 run.sh 1 100 0 100\n");
  const auto parsed = parse_profiles(text.text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->profiles, example());
  EXPECT_EQ(parsed->ignored, 0U);
}

TEST(Profile, NamesOfJobsBecomeNames) {
  EXPECT_EQ(profile_name("a b:c\n=1"), "a_b_c__1");
  EXPECT_EQ(profile_name(std::string(100, 'x')), std::string(64, 'x'));
  EXPECT_EQ(profile_name(""), "");
}

TEST(Profile, SharesAreStepsOfFiveThatSuffice) {
  for (std::uint32_t busy = 1; busy <= 100; ++busy) {
    const std::uint32_t share = learnt_share({1, busy, 0, 0});
    EXPECT_EQ(share % 5, 0U);
    EXPECT_TRUE(share >= busy && share < busy + 5) << busy;
  }
}

TEST(Profile, LinesThatAreNoneAreIgnoredAndCounted) {
  const std::string good = "1 rl lora tiny a 4 23 15 6";
  const std::vector<std::string> bad = {
      "",
      " " + good,
      good + " ",
      good + " 1",
      "x rl lora tiny b 4 23 15 6",
      "-1 rl lora tiny b 4 23 15 6",
      "01 rl lora tiny b 4 23 15 6",
      "4294967296 rl lora tiny b 4 23 15 6",
      "1 r/l lora tiny b 4 23 15 6",
      "1 rl lora tiny, b 4 23 15 6",
      "1 rl lora ,tiny b 4 23 15 6",
      "1 rl lora a,b,c,d,e,f,g,h,i b 4 23 15 6",
      "1 rl lora tiny  4 23 15 6",
      "1 rl lora tiny b 0 23 15 6",
      "1 rl lora tiny b 1000001 23 15 6",
      "1 rl lora tiny b 4 0 15 6",
      "1 rl lora tiny b 4 101 15 6",
      "1 rl lora tiny b 4 2.5 15 6",
      "1 rl lora tiny b 4 23 15",
      "1 rl lora tiny " + std::string(65, 'b') + " 4 23 15 6",
      std::string("1 rl lora tiny b\0 4 23 15 6", 27),
      std::string(70000, 'y'),
      good,  // twice
  };
  std::string text = "plexrl-profiles 1\n" + good + "\n";
  for (const std::string& line : bad) text += line + "\n";
  const auto parsed = parse_profiles(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->profiles.size(), 1U);
  EXPECT_EQ(parsed->ignored, bad.size());
  EXPECT_EQ(parsed->first_ignored, 3U);
  // The last line may lack its end.
  EXPECT_EQ(parse_profiles("plexrl-profiles 1\n" + good)->profiles.size(), 1U);
}

TEST(Profile, OtherFilesAreNoProfiles) {
  for (const char* text : {"", "plexrl-profiles 2\n", "plexrl-profiles 1 \n", "\n", "cluster: x\n"})
    EXPECT_EQ(parse_profiles(text).error().code(), Code::CORRUPT) << text;
  EXPECT_EQ(parse_profiles(std::string(kMaxProfilesText + 1, '1')).error().code(), Code::TOO_LARGE);
}

TEST(Profile, TheFileStaysBelowItsLimit) {
  Profiles many;
  for (std::uint32_t i = 0; i < 20000; ++i)
    many[{i, "rl", "lora", {"tiny"}, std::string(60, 'n')}] = {i % 7 + 1, 50, 25, 25};
  const ProfilesText text = format_profiles(many);
  EXPECT_LE(text.text.size(), kMaxProfilesText);
  const auto parsed = parse_profiles(text.text);
  ASSERT_TRUE(parsed);
  EXPECT_GT(text.left_out, 0U);
  EXPECT_EQ(parsed->profiles.size() + text.left_out, many.size());
  for (const auto& [key, profile] : parsed->profiles) EXPECT_GE(profile.runs, 3U);
}

class ProfileFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-profiles-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    path_ = profiles_path(top_ + "/plexrl.yaml");
  }
  void TearDown() override { std::filesystem::remove_all(top_); }
  Code code() {
    const auto loaded = load_profiles(path_);
    return loaded ? Code::OK : loaded.error().code();
  }
  std::string top_, path_;
};

TEST_F(ProfileFile, IsWrittenWholeAndReadBack) {
  EXPECT_EQ(code(), Code::NOT_FOUND);
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(write_profiles(path_, format_profiles(example()).text).ok());
  const auto loaded = load_profiles(path_);
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(loaded->profiles, example());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(top_), {}), 1);
}

TEST_F(ProfileFile, IsNotTakenFromOthers) {
  ASSERT_TRUE(write_profiles(path_, format_profiles(example()).text).ok());
  ASSERT_EQ(::chmod(path_.c_str(), 0664), 0);
  EXPECT_EQ(code(), Code::PERMISSION);
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  ASSERT_EQ(::chmod(top_.c_str(), 0777), 0);
  EXPECT_EQ(code(), Code::PERMISSION);
  ASSERT_EQ(::chmod(top_.c_str(), 0755), 0);
  EXPECT_EQ(code(), Code::OK);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path_.c_str(), 65534, 0), 0);
    EXPECT_EQ(code(), Code::PERMISSION);
  }
}

// Nothing waits for a writer or reads a device for ever.
TEST_F(ProfileFile, IsAPlainFileOfLimitedSize) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(code(), Code::PERMISSION);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(code(), Code::PERMISSION);
  std::filesystem::remove(path_);
  std::ofstream(path_) << "plexrl-profiles 1\n" << std::string(kMaxProfilesText, '1');
  EXPECT_EQ(code(), Code::TOO_LARGE);
  std::ofstream(path_) << "something else\n";
  EXPECT_EQ(code(), Code::CORRUPT);
}

}  // namespace
}  // namespace plexrl::slurm
