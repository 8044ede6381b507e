// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace plexrl::runtime {
namespace {

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStoreTest() : store_(dir_, 100) { EXPECT_TRUE(store_.open().ok()); }
  ~CheckpointStoreTest() override { std::filesystem::remove_all(dir_); }

  Status save(std::uint32_t uid, const std::string& name, const std::string& text) {
    PLEXRL_ASSIGN(auto draft, store_.begin(uid, name));
    EXPECT_EQ(::write(draft.fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    return store_.finish(std::move(draft));
  }
  std::string load(std::uint32_t uid, const std::string& name) {
    const auto fd = store_.read(uid, name);
    if (!fd) return fd.error().to_string();
    char buffer[64] = {};
    const ssize_t size = ::read(fd->get(), buffer, sizeof buffer);
    return std::string(buffer, static_cast<std::size_t>(size));
  }

  static std::string make_dir() {
    char path[] = "/tmp/plexrl-store-XXXXXX";
    return ::mkdtemp(path);
  }
  std::string dir_ = make_dir();
  CheckpointStore store_;
};

TEST_F(CheckpointStoreTest, KeepsWhatWasFinished) {
  ASSERT_TRUE(save(1000, "a", "first").ok());
  EXPECT_EQ(load(1000, "a"), "first");
  ASSERT_TRUE(save(1000, "a", "second").ok());
  EXPECT_EQ(load(1000, "a"), "second");
}

TEST_F(CheckpointStoreTest, OtherUsersDoNotSeeIt) {
  ASSERT_TRUE(save(1000, "a", "first").ok());
  EXPECT_EQ(store_.read(1001, "a").error().code(), Code::NOT_FOUND);
}

TEST_F(CheckpointStoreTest, ADiscardedDraftLeavesTheOldOne) {
  ASSERT_TRUE(save(1000, "a", "first").ok());
  auto draft = store_.begin(1000, "a").value();
  ASSERT_EQ(::write(draft.fd.get(), "x", 1), 1);
  store_.discard(std::move(draft));
  EXPECT_EQ(load(1000, "a"), "first");
  EXPECT_EQ(store_.used_bytes(1000), 5U);
}

TEST_F(CheckpointStoreTest, TheQuotaCountsPerUserAndNotTheReplacedFile) {
  ASSERT_TRUE(save(1000, "a", std::string(80, 'x')).ok());
  ASSERT_TRUE(save(1000, "a", std::string(90, 'y')).ok());
  EXPECT_EQ(save(1000, "b", std::string(20, 'z')).code(), Code::NO_CAPACITY);
  EXPECT_EQ(store_.read(1000, "b").error().code(), Code::NOT_FOUND);
  EXPECT_TRUE(save(1001, "b", std::string(20, 'z')).ok());
}

TEST_F(CheckpointStoreTest, DraftsOfAnEarlierDaemonAreRemoved) {
  auto draft = store_.begin(1000, "a").value();
  ASSERT_EQ(::write(draft.fd.get(), "x", 1), 1);
  ASSERT_TRUE(store_.open().ok());
  EXPECT_EQ(store_.used_bytes(1000), 0U);
}

TEST_F(CheckpointStoreTest, ASymbolicLinkIsNotFollowed) {
  ASSERT_TRUE(save(1000, "a", "first").ok());
  std::filesystem::create_symlink("/etc/passwd", dir_ + "/1000/link");
  EXPECT_EQ(store_.read(1000, "link").error().code(), Code::IO);
}

}  // namespace
}  // namespace plexrl::runtime
