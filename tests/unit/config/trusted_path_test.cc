// SPDX-License-Identifier: Apache-2.0
#include "config/trusted_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace plexrl::config {
namespace {

class TrustedPath : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-trust-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    std::filesystem::create_directory(top_ + "/d");
    file_ = top_ + "/d/plexrl.yaml";
    std::ofstream(file_) << "cluster: x\n";
    ASSERT_EQ(::chmod(file_.c_str(), 0644), 0);
    ASSERT_EQ(::chmod((top_ + "/d").c_str(), 0755), 0);
  }
  void TearDown() override { std::filesystem::remove_all(top_); }

  std::string top_;
  std::string file_;
};

// /tmp itself is world-writable with the sticky bit, which is fine.
TEST_F(TrustedPath, AcceptsAPrivateFileBelowAStickyDirectory) {
  EXPECT_EQ(check_trusted_path(file_).to_string(), "OK");
}

TEST_F(TrustedPath, RefusesAFileThatTheGroupMayWrite) {
  ASSERT_EQ(::chmod(file_.c_str(), 0664), 0);
  EXPECT_EQ(check_trusted_path(file_).to_string(),
            "PERMISSION: '" + file_ + "' can be written by others: run 'chmod go-w " + file_ + "'");
}

TEST_F(TrustedPath, RefusesADirectoryOnTheWay) {
  ASSERT_EQ(::chmod((top_ + "/d").c_str(), 0777), 0);
  EXPECT_EQ(check_trusted_path(file_).code(), Code::PERMISSION);
}

TEST_F(TrustedPath, FollowsLinksToWhatTheyName) {
  ASSERT_EQ(::chmod((top_ + "/d").c_str(), 0777), 0);
  std::filesystem::create_symlink(file_, top_ + "/link");
  EXPECT_EQ(check_trusted_path(top_ + "/link").code(), Code::PERMISSION);
}

TEST_F(TrustedPath, RefusesAnotherOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  ASSERT_EQ(::chown(file_.c_str(), 12345, 12345), 0);
  const Status status = check_trusted_path(file_);
  EXPECT_EQ(status.code(), Code::PERMISSION);
  EXPECT_NE(status.text().find("belongs to user 12345"), std::string::npos);
}

TEST_F(TrustedPath, SaysWhenThereIsNoFile) {
  EXPECT_EQ(check_trusted_path(top_ + "/none").code(), Code::NOT_FOUND);
}

}  // namespace
}  // namespace plexrl::config
