// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/http_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>

#include "wire/unix_socket.h"

namespace plexrl::cli {
namespace {

TimePoint in_two_seconds() { return system_clock().now() + Duration{2 * kSecond.ns}; }

// The other end is in the test's hands.
class HttpLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-link-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    auto listener = wire::listen_unix(directory_ + "/s", 0600);
    ASSERT_TRUE(listener);
    auto link = connect_http_link(directory_ + "/s", {"POST", "/x", "key", "{}"}, in_two_seconds());
    ASSERT_TRUE(link) << link.error().to_string();
    link_ = *std::move(link);
    auto accepted = wire::accept_unix(listener->get());
    ASSERT_TRUE(accepted);
    server_ = *std::move(accepted);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void say(const std::string& text) {
    ASSERT_EQ(::send(server_.get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
  }
  std::vector<std::uint64_t> taken() {
    std::vector<std::uint64_t> answered;
    status_ = link_->receive(answered);
    return answered;
  }

  std::string directory_;
  std::unique_ptr<LoadLink> link_;
  UniqueFd server_;
  Status status_;
};

using Ids = std::vector<std::uint64_t>;

TEST_F(HttpLinkTest, SendsTheRequestAndTakesAnswersInAnyPieces) {
  ASSERT_TRUE(link_->send(7).ok());
  ASSERT_TRUE(link_->send(8).ok());
  char bytes[1000];
  const ssize_t got = ::recv(server_.get(), bytes, sizeof bytes, 0);
  const std::string once =
      "POST /x HTTP/1.1\r\nHost: plexrl\r\nX-API-Key: key\r\nContent-Type: application/json\r\n"
      "Content-Length: 2\r\n\r\n{}";
  EXPECT_EQ(std::string(bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))), once + once);
  EXPECT_EQ(taken(), Ids{});
  say("HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n");
  EXPECT_EQ(taken(), Ids{});
  say("\r\nabc");
  EXPECT_EQ(taken(), Ids{});
  say("deHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(taken(), (Ids{7, 8}));
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(link_->sizes().request_bytes, once.size());
}

TEST_F(HttpLinkTest, ARefusalIsReportedNotCounted) {
  ASSERT_TRUE(link_->send(1).ok());
  say("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy");
  EXPECT_EQ(taken(), Ids{});
  EXPECT_NE(status_.text().find("status 429: busy"), std::string::npos);
}

TEST_F(HttpLinkTest, WhatIsNoAnswerEndsTheLoad) {
  for (const char* text : {"HTTP/1.1 200 OK\r\n\r\n", "hello\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"}) {
    TearDown();
    SetUp();
    ASSERT_TRUE(link_->send(1).ok());
    say(text);
    EXPECT_EQ(taken(), Ids{});
    EXPECT_EQ(status_.code(), Code::PROTOCOL) << text;
  }
}

TEST_F(HttpLinkTest, AnAnswerToNoRequestAndTheEndEndTheLoad) {
  say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(taken(), Ids{});
  EXPECT_EQ(status_.code(), Code::PROTOCOL);
  server_.reset();
  EXPECT_EQ(taken(), Ids{});
  EXPECT_EQ(status_.code(), Code::UNAVAILABLE);
}

}  // namespace
}  // namespace plexrl::cli
