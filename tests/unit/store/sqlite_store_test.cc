// SPDX-License-Identifier: Apache-2.0
// What only a store on a disk can meet: restarts, kill -9, damaged files, full disks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "store/state_store.h"

namespace plexrl::store {
namespace {

class SqliteStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "plexrl_sqlite_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/facts.db";
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::unique_ptr<StateStore> open() {
    auto opened = open_sqlite_store(path_);
    EXPECT_TRUE(opened.has_value()) << opened.error().to_string();
    return opened ? std::move(opened).value() : nullptr;
  }
  static std::uint64_t number(StateStore& store, std::uint64_t key) {
    const auto row = store.get("t", key, 0);
    return row ? std::stoull(row.value()) : 0;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SqliteStoreTest, FactsSurviveAReopenAndTheFileIsPrivate) {
  const mode_t before = ::umask(0);
  ASSERT_TRUE(open()->put("t", 1, 0, "7").ok());
  ::umask(before);
  EXPECT_EQ(number(*open(), 1), 7u);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// The child writes pairs (n, n) in transactions, says each committed n, and is killed at an
// arbitrary moment. What it said must be there, and the two rows of a pair must agree.
TEST_F(SqliteStoreTest, KillLosesNothingThatWasAcknowledgedAndNeverHalvesATransaction) {
  for (int round = 0; round < 8; ++round) {
    int said[2];
    ASSERT_EQ(::pipe(said), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = open_sqlite_store(path_);
      if (!store) ::_exit(1);
      for (std::uint64_t n = number(**store, 1) + 1;; ++n) {
        const std::string text = std::to_string(n);
        Batch pair;
        pair.put("t", 1, 0, text);
        pair.put("t", 2, 0, text);
        const BatchPtr batch = std::make_shared<const Batch>(std::move(pair));
        if (!(*store)->apply({&batch, 1}).ok()) ::_exit(2);
        if (::write(said[1], &n, sizeof n) != sizeof n) ::_exit(3);
      }
    }
    ::close(said[1]);
    std::uint64_t acknowledged = 0;
    const int wanted = 3 + round * 5;
    for (int i = 0; i < wanted; ++i)
      ASSERT_EQ(::read(said[0], &acknowledged, sizeof acknowledged), ssize_t{sizeof acknowledged});
    ::usleep(static_cast<useconds_t>(round) * 137);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    std::uint64_t later = 0;
    while (::read(said[0], &later, sizeof later) == ssize_t{sizeof later}) acknowledged = later;
    ::close(said[0]);
    auto store = open();
    ASSERT_NE(store, nullptr);
    EXPECT_GE(number(*store, 1), acknowledged);
    EXPECT_EQ(number(*store, 1), number(*store, 2));
  }
}

TEST_F(SqliteStoreTest, ASecondDaemonOnTheSameFileIsRefused) {
  const auto first = open();
  const auto second = open_sqlite_store(path_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::UNAVAILABLE);
  EXPECT_NE(second.error().text().find("another plexrld uses it"), std::string::npos);
}

TEST_F(SqliteStoreTest, AFileThatIsNoDatabaseIsCorruptWithPathAndRemedy) {
  std::ofstream(path_) << std::string(8192, 'x');
  const auto store = open_sqlite_store(path_);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code(), Code::CORRUPT);
  EXPECT_NE(store.error().text().find(path_), std::string::npos);
  EXPECT_NE(store.error().text().find("move the file away"), std::string::npos);
}

TEST_F(SqliteStoreTest, ATruncatedFileIsCorrupt) {
  {
    auto store = open();
    for (std::uint64_t key = 0; key < 64; ++key)
      ASSERT_TRUE(store->put("t", key, 0, std::string(4000, 'v')).ok());
  }
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2 / 4096 * 4096);
  const auto store = open_sqlite_store(path_);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code(), Code::CORRUPT) << store.error().to_string();
}

TEST_F(SqliteStoreTest, AFileOfANewerFormatOrAnotherProgramIsRefused) {
  { ASSERT_NE(open(), nullptr); }
  const auto run = [&](const char* sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  };
  run("PRAGMA user_version=2");
  EXPECT_EQ(open_sqlite_store(path_).error().code(), Code::UNSUPPORTED);
  run("PRAGMA application_id=77");
  EXPECT_EQ(open_sqlite_store(path_).error().code(), Code::CORRUPT);
}

TEST_F(SqliteStoreTest, AMissingDirectoryAndASymbolicLinkAreErrorsWithThePath) {
  const auto missing = open_sqlite_store(folder_ + "/none/facts.db");
  EXPECT_EQ(missing.error().code(), Code::IO);
  EXPECT_NE(missing.error().text().find("/none/facts.db"), std::string::npos);
  ASSERT_EQ(::symlink("/dev/null", path_.c_str()), 0);
  EXPECT_EQ(open_sqlite_store(path_).error().code(), Code::IO);
}

TEST_F(SqliteStoreTest, AReadOnlyDirectoryIsAnError) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0500), 0);
  if (::geteuid() == 0) {
    // Permissions do not bind root: mount it read-only instead.
    if (::mount("none", folder_.c_str(), "tmpfs", MS_RDONLY, "size=64k") != 0)
      GTEST_SKIP() << "may not mount a tmpfs here";
  }
  EXPECT_EQ(open_sqlite_store(path_).error().code(), Code::IO);
  if (::geteuid() == 0) ::umount(folder_.c_str());
  ::chmod(folder_.c_str(), 0700);
}

// In a child, as the limit on file sizes is the process's.
TEST_F(SqliteStoreTest, AFullDiskFailsTheCommitAsAWholeAndLaterWritesWork) {
  auto store = open();
  ASSERT_TRUE(store->put("t", 1, 0, "1").ok());
  const auto full = [&] {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit small{512 * 1024, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &small);
    Batch large;
    large.put("t", 1, 0, "2");
    for (std::uint64_t key = 2; key < 2000; ++key) large.put("t", key, 0, std::string(4000, 'v'));
    const BatchPtr batch = std::make_shared<const Batch>(std::move(large));
    if (store->apply({&batch, 1}).ok()) ::_exit(3);
    if (number(*store, 1) != 1) ::_exit(4);
    rlimit normal{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &normal);
    if (!store->put("t", 1, 0, "5").ok()) ::_exit(5);
    ::_exit(number(*store, 1) == 5 ? 0 : 6);
  };
  EXPECT_EXIT(full(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace plexrl::store
