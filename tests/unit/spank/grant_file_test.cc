// SPDX-License-Identifier: Apache-2.0
#include "grant_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace plexrl::spank {
namespace {

class GrantFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-grants-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    directory_ = top_ + "/jobs";
  }
  void TearDown() override { std::filesystem::remove_all(top_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
  }

  std::string top_;
  std::string directory_;
};

TEST_F(GrantFile, NotesReadsAndForgets) {
  const auto files = GrantFiles::open(directory_);
  ASSERT_TRUE(files) << files.error().to_string();
  ASSERT_TRUE(files->note({7, 1001, 1002, "v1:pool=rl"}).ok());
  const auto job = files->read(7);
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->job_id, 7U);
  EXPECT_EQ(job->uid, 1001U);
  EXPECT_EQ(job->gid, 1002U);
  EXPECT_EQ(job->grant, "v1:pool=rl");
  EXPECT_TRUE(files->forget(7).ok());
  EXPECT_TRUE(files->forget(7).ok());
  EXPECT_EQ(files->read(7).error().code(), Code::NOT_FOUND);
}

TEST_F(GrantFile, ANewNoteReplacesTheOldOne) {
  const auto files = GrantFiles::open(directory_);
  ASSERT_TRUE(files);
  ASSERT_TRUE(files->note({7, 1, 1, "old and long"}).ok());
  ASSERT_TRUE(files->note({7, 2, 2, "new"}).ok());
  EXPECT_EQ(files->read(7).value().grant, "new");
  const auto entries = std::filesystem::directory_iterator(directory_);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST_F(GrantFile, ReadingNeedsTheDirectory) {
  EXPECT_EQ(GrantFiles::open_existing(directory_).error().code(), Code::NOT_FOUND);
}

TEST_F(GrantFile, RefusesADirectoryThatOthersCanEnter) {
  std::filesystem::create_directory(directory_);
  ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
  EXPECT_EQ(GrantFiles::open(directory_).error().code(), Code::PERMISSION);
}

TEST_F(GrantFile, RefusesALinkInsteadOfTheDirectory) {
  std::filesystem::create_directory(top_ + "/elsewhere");
  std::filesystem::create_directory_symlink(top_ + "/elsewhere", directory_);
  EXPECT_FALSE(GrantFiles::open(directory_));
}

TEST_F(GrantFile, DamagedNotesAreNamed) {
  const auto files = GrantFiles::open(directory_);
  ASSERT_TRUE(files);
  for (const char* text : {"", "\n", "1", "1 2", "1 2\n", "x 2 g\n", "1 y g\n", "1 2 g",
                           "1 2 g\nmore\n", "-1 2 g\n", "99999999999 2 g\n"}) {
    write("9", text);
    EXPECT_EQ(files->read(9).error().code(), Code::CORRUPT) << text;
  }
  write("9", std::string(100000, '1'));
  EXPECT_EQ(files->read(9).error().code(), Code::CORRUPT);
}

TEST_F(GrantFile, ANoteThatFindsNoRoomStillTellsThatThisIsNoOrdinaryJob) {
  const auto files = GrantFiles::open(directory_);
  ASSERT_TRUE(files);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit nothing{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &nothing), 0);
  const Status status = files->note({7, 1, 1, "v1:pool=rl"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(files->read(7).error().code(), Code::CORRUPT);
  EXPECT_TRUE(files->note({7, 1, 1, "v1:pool=rl"}).ok());
  EXPECT_TRUE(files->read(7));
}

TEST_F(GrantFile, OneTaskAtATimeOpensAJob) {
  const auto files = GrantFiles::open(directory_);
  ASSERT_TRUE(files);
  ASSERT_TRUE(files->note({7, 1, 1, "g"}).ok());
  {
    const auto first = files->lock(7);
    ASSERT_TRUE(first);
    EXPECT_EQ(files->lock(7).error().code(), Code::BUSY);
  }
  EXPECT_TRUE(files->lock(7));
}

}  // namespace
}  // namespace plexrl::spank
