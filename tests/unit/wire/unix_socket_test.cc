// SPDX-License-Identifier: Apache-2.0
#include "wire/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

namespace plexrl::wire {
namespace {

class UnixSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-socket-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  [[nodiscard]] std::string path() const { return dir_ + "/s"; }
  static TimePoint soon() { return system_clock().now() + Duration{50 * kMillisecond.ns}; }

  std::string dir_;
};

TEST_F(UnixSocket, ConnectAcceptAndCredentials) {
  const auto listener = listen_unix(path(), 0600);
  ASSERT_TRUE(listener.has_value()) << listener.error().to_string();
  EXPECT_EQ(accept_unix(listener->get()).error().code(), Code::BUSY);
  const auto client = connect_unix(path(), soon());
  ASSERT_TRUE(client.has_value());
  const auto server = accept_unix(listener->get());
  ASSERT_TRUE(server.has_value());
  const auto peer = peer_credentials(server->get());
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->pid, ::getpid());
}

TEST_F(UnixSocket, TheModeIsAsAsked) {
  const auto listener = listen_unix(path(), 0666);
  ASSERT_TRUE(listener.has_value());
  struct stat st {};
  ASSERT_EQ(::stat(path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0666U);
}

TEST_F(UnixSocket, AStaleSocketIsReplaced) {
  {
    const auto dead = listen_unix(path(), 0600);
    ASSERT_TRUE(dead.has_value());
  }
  EXPECT_EQ(connect_unix(path(), soon()).error().code(), Code::UNAVAILABLE);
  EXPECT_TRUE(listen_unix(path(), 0600).has_value());
}

TEST_F(UnixSocket, ALiveSocketIsNotStolen) {
  const auto first = listen_unix(path(), 0600);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(listen_unix(path(), 0600).error().code(), Code::EXISTS);
  EXPECT_TRUE(connect_unix(path(), soon()).has_value());
}

TEST_F(UnixSocket, AFileInTheWayIsLeftAlone) {
  { UniqueFd file(::open(path().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)); }
  EXPECT_EQ(listen_unix(path(), 0600).error().code(), Code::EXISTS);
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(UnixSocket, TooLongPathSaysSo) {
  const std::string path(200, 'x');
  EXPECT_EQ(listen_unix(path, 0600).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(connect_unix(path, soon()).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(connect_unix("", soon()).error().code(), Code::INVALID_ARGUMENT);
}

TEST_F(UnixSocket, NobodyThereIsUnavailable) {
  EXPECT_EQ(connect_unix(path(), soon()).error().code(), Code::UNAVAILABLE);
}

TEST_F(UnixSocket, AListenerThatNeverAcceptsTimesOut) {
  const auto listener = listen_unix(path(), 0600, 0);
  ASSERT_TRUE(listener.has_value());
  std::vector<UniqueFd> waiting;
  Status status;
  for (int i = 0; i < 5 && status.ok(); ++i) {
    auto client = connect_unix(path(), soon());
    status = client.status();
    if (client) waiting.push_back(std::move(*client));
  }
  EXPECT_EQ(status.code(), Code::TIMEOUT);
}

}  // namespace
}  // namespace plexrl::wire
