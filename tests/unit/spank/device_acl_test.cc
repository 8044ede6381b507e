// SPDX-License-Identifier: Apache-2.0
#include "device_acl.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "device_access.h"

namespace plexrl::spank {
namespace {

class DeviceAclTest : public ::testing::Test {
 protected:
  DeviceAclTest() {
    char folder[] = "/tmp/plexrl-acl-XXXXXX";
    folder_ = ::mkdtemp(folder);
    ::chmod(folder_.c_str(), 0755);
    file_ = folder_ + "/device";
    std::ofstream(file_) << "x";
    ::chmod(file_.c_str(), 0660);
  }
  ~DeviceAclTest() override { std::filesystem::remove_all(folder_); }
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root: opens files as other users";
    const Status status = shut_out(file_, 1);
    if (status.code() == Code::UNSUPPORTED) GTEST_SKIP() << status.text();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  [[nodiscard]] mode_t mode() const {
    struct stat info {};
    ::stat(file_.c_str(), &info);
    return info.st_mode & 0777;
  }
  // Whether a process of the user may open it for reading and writing.
  [[nodiscard]] bool may_open(uid_t uid) const {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool changed = ::setgid(65533) == 0 && ::setuid(uid) == 0;
      ::_exit(changed && ::open(file_.c_str(), O_RDWR) >= 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::string folder_;
  std::string file_;
};

TEST_F(DeviceAclTest, LetsOneUserInAndOutAgain) {
  ASSERT_TRUE(let_in(file_, 4001).ok());
  EXPECT_TRUE(may_open(4001));
  EXPECT_FALSE(may_open(4002));
  ASSERT_TRUE(let_in(file_, 4002).ok());
  ASSERT_TRUE(let_in(file_, 4001).ok()) << "again";
  EXPECT_TRUE(may_open(4002));
  ASSERT_TRUE(shut_out(file_, 4001).ok());
  EXPECT_FALSE(may_open(4001));
  EXPECT_TRUE(may_open(4002));
  ASSERT_TRUE(shut_out(file_, 4002).ok());
  ASSERT_TRUE(shut_out(file_, 4002).ok()) << "again";
  EXPECT_FALSE(may_open(4002));
  EXPECT_EQ(mode(), 0660U) << "as it was";
}

TEST_F(DeviceAclTest, NothingForOthers) {
  ASSERT_TRUE(let_in(file_, 4001).ok());
  EXPECT_EQ(mode() & 0007, 0U);
}

TEST_F(DeviceAclTest, TheLastLeaseJobOfAUserTakesTheEntryAway) {
  const auto files = GrantFiles::open(folder_ + "/jobs");
  ASSERT_TRUE(files);
  const std::string none = "v1:pool=rl:share=50:mem=8:mode=none:rank=0:slowdown=0:models=tiny";
  const std::string lora = "v1:pool=rl:share=50:mem=8:mode=lora:rank=8:slowdown=0:models=tiny";
  const NotedJob one{1, 4001, 100, none};
  const NotedJob two{2, 4001, 100, none};
  const NotedJob trains{3, 4002, 100, lora};
  const TimePoint soon = system_clock().now() + Duration{5 * kSecond.ns};
  for (const NotedJob& job : {one, two, trains}) {
    ASSERT_TRUE(files->note(job).ok());
    ASSERT_TRUE(open_devices(*files, job, file_ + "*", soon).ok());
  }
  EXPECT_TRUE(may_open(4001));
  EXPECT_FALSE(may_open(4002)) << "it trains in the service";
  ASSERT_TRUE(files->forget(1).ok());
  ASSERT_TRUE(close_devices(*files, one, file_ + "*", soon).ok());
  EXPECT_TRUE(may_open(4001)) << "job 2 runs";
  ASSERT_TRUE(files->forget(2).ok());
  ASSERT_TRUE(close_devices(*files, two, file_ + "*", soon).ok());
  EXPECT_FALSE(may_open(4001));
}

TEST(DeviceAclCodec, KeepsWhatItDoesNotChange) {
  const Acl acl = {{0x01, 6, 0xffffffff}, {0x02, 4, 7},          {0x04, 6, 0xffffffff},
                   {0x08, 6, 9},          {0x10, 6, 0xffffffff}, {0x20, 0, 0xffffffff}};
  EXPECT_EQ(decode_acl(encode_acl(acl)).value(), acl);
  EXPECT_EQ(without_user(with_user(acl, 5), 5), acl);
  EXPECT_EQ(with_user(acl, 8).at(2).id, 8U) << "in the order of the kernel";
}

TEST(DeviceAclCodec, DamageIsAnError) {
  std::mt19937 random(5);
  for (std::size_t size = 0; size < 40; ++size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_FALSE(decode_acl(bytes));
  }
}

}  // namespace
}  // namespace plexrl::spank
