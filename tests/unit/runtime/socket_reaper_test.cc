// SPDX-License-Identifier: Apache-2.0
#include "runtime/socket_reaper.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>

#include "wire/reap_message.h"

namespace plexrl::runtime {
namespace {

// The other end of the socket, by hand.
class SocketReaperTest : public ::testing::Test {
 protected:
  SocketReaperTest() {
    char path[] = "/tmp/plexrl-socket-reaper-XXXXXX";
    folder_ = ::mkdtemp(path);
  }
  ~SocketReaperTest() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return folder_ + "/s"; }
  void listen() {
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    ASSERT_EQ(::listen(listener_.get(), 4), 0);
  }
  UniqueFd accept() { return UniqueFd(::accept(listener_.get(), nullptr, nullptr)); }
  static void answer(const UniqueFd& peer, wire::ReapAnswer answer) {
    const std::string bytes = wire::encode(answer);
    ASSERT_EQ(::send(peer.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string folder_;
  UniqueFd listener_;
};

TEST_F(SocketReaperTest, NobodyListens) {
  SocketReaper reaper(path());
  EXPECT_TRUE(reaper.last().ok()) << "nothing was asked";
  EXPECT_EQ(reaper.stop({77, 1000, {5}}).code(), Code::UNAVAILABLE);
}

TEST_F(SocketReaperTest, TheAnswerIsHeardWhenItComes) {
  listen();
  SocketReaper reaper(path());
  ASSERT_TRUE(reaper.stop({77, 1000, {5, 6}}).ok());
  EXPECT_EQ(reaper.last().code(), Code::BUSY);
  const UniqueFd peer = accept();
  EXPECT_EQ(reaper.last().code(), Code::BUSY);
  char bytes[64];
  EXPECT_EQ(::recv(peer.get(), bytes, sizeof bytes, 0), 24);
  answer(peer, {1, 0, 1});
  EXPECT_EQ(reaper.last().code(), Code::PERMISSION);
  EXPECT_NE(reaper.last().text().find("job 77"), std::string::npos);
  ASSERT_TRUE(reaper.stop({77, 1000, {6}}).ok());
  EXPECT_EQ(reaper.last().code(), Code::BUSY) << "that was the answer to the one before";
  answer(accept(), {1, 0, 0});
  EXPECT_TRUE(reaper.last().ok());
}

TEST_F(SocketReaperTest, CutOffWithoutAnAnswer) {
  listen();
  SocketReaper reaper(path());
  ASSERT_TRUE(reaper.stop({77, 1000, {5}}).ok());
  accept().reset();
  EXPECT_EQ(reaper.last().code(), Code::UNAVAILABLE);
}

}  // namespace
}  // namespace plexrl::runtime
