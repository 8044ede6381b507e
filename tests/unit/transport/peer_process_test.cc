// SPDX-License-Identifier: Apache-2.0
// UCX between two processes, one of which is killed or stopped in the middle. The other process is
// this program again, with the test that is disabled.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "unit/transport/transport_fixture.h"

extern char** environ;

namespace plexrl::transport {
namespace {

constexpr std::size_t kBytes = std::size_t{48} << 20;
constexpr const char* kKind = "PLEXRL_TEST_CARRIER";

TEST(PeerProcess, DISABLED_Holder) {
  const char* const kind = ::getenv(kKind);
  ASSERT_NE(kind, nullptr) << "started by PeerProcess only";
  Carriers carriers(kind);
  TestLoop loop;
  TestNode node;
  TestMemory memory(kBytes);
  memory.fill(1);
  auto carrier = carriers.make();
  ASSERT_TRUE(carrier.has_value());
  auto made = make_threaded_transport(std::move(carrier).value(), node_options("holder"),
                                      node.events(), loop.post());
  ASSERT_TRUE(made.has_value());
  const auto address = (*made)->listen("127.0.0.1:0");
  ASSERT_TRUE((*made)->add_region(memory.all()).has_value());
  ASSERT_TRUE((*made)->offer({memory.used(), {}}).has_value());
  const std::string line = "address " + *address + "\n";
  ASSERT_EQ(::write(STDERR_FILENO, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  char end = 0;
  EXPECT_EQ(::read(STDIN_FILENO, &end, 1), 0) << "until the other one ends";
}

class PeerProcess : public TransportTest {
 protected:
  void SetUp() override {
    TransportTest::SetUp();
    if (!IsSkipped()) spawn();
  }
  void TearDown() override {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  void spawn() {
    int in[2];
    int out[2];
    ASSERT_EQ(::pipe2(in, O_CLOEXEC) + ::pipe2(out, O_CLOEXEC), 0);
    stdin_ = UniqueFd(in[1]);
    const UniqueFd in_end(in[0]);
    const UniqueFd out_end(out[1]);
    const UniqueFd from(out[0]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDERR_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ::setenv(kKind, GetParam(), 1);
    std::string words[] = {"holder", "--gtest_filter=PeerProcess.DISABLED_Holder",
                           "--gtest_also_run_disabled_tests"};
    char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    ASSERT_EQ(::posix_spawn(&child_, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    std::string text;
    for (char byte = 0; text.find("address ") == std::string::npos || byte != '\n'; text += byte)
      ASSERT_EQ(::read(from.get(), &byte, 1), 1) << text;
    const std::size_t at = text.find("address ") + 8;
    holder_.address = text.substr(at, text.size() - at - 1);
  }
  void begin(Options options) {
    start(taker_, std::move(options));
    const Status status = loop_.wait([&](Transport::Done done) {
      here_ = taker_.transport->connect(holder_.address, "holder", std::move(done));
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    add(taker_, to_);
    const auto begun = taker_.transport->fetch(request(OfferId{1}, to_),
                                               [this](const Status& it) { ended_ = it; });
    ASSERT_TRUE(begun.has_value()) << begun.error().to_string();
    ASSERT_TRUE(loop_.until([&] { return taker_.transport->progress(*begun) > 0 || ended_; }));
  }
  TestMemory& to_ = memory(kBytes);
  pid_t child_ = 0;
  UniqueFd stdin_;
  std::optional<Status> ended_;
};

TEST_P(PeerProcess, BytesArrive) {
  begin(node_options("taker"));
  ASSERT_TRUE(loop_.until([&] { return ended_.has_value(); }));
  ASSERT_TRUE(ended_->ok()) << ended_->to_string();
  TestMemory expected(kBytes);
  expected.fill(1);
  EXPECT_TRUE(to_.equals(expected));
}

TEST_P(PeerProcess, KilledInTheMiddleIsUnavailableLongBeforeTheDeadline) {
  begin(node_options("taker"));
  ASSERT_EQ(::kill(child_, SIGKILL), 0);
  ASSERT_TRUE(loop_.until([&] { return ended_.has_value() && !taker_.closed.empty(); }));
  EXPECT_TRUE(ended_->ok() || ended_->code() == Code::UNAVAILABLE) << ended_->to_string();
  EXPECT_EQ(taker_.closed[0].second.code(), Code::UNAVAILABLE);
  EXPECT_TRUE(to_.guarded());
}

// As when the network is gone: the connection stands, but nobody answers.
TEST_P(PeerProcess, StoppedInTheMiddleIsUnavailable) {
  Options options = node_options("taker");
  options.clock = &clock_;
  begin(options);
  ASSERT_EQ(::kill(child_, SIGSTOP), 0);
  loop_.each = [this] {
    clock_.advance(kSecond);
    taker_.transport->set_epoch(0);
  };
  ASSERT_TRUE(loop_.until([&] { return ended_.has_value() && !taker_.closed.empty(); }));
  EXPECT_TRUE(ended_->ok() || ended_->code() == Code::UNAVAILABLE) << ended_->to_string();
  to_.set(7);
  ASSERT_EQ(::kill(child_, SIGCONT), 0);
  const TimePoint now = clock_.now();
  ASSERT_TRUE(loop_.until([&] { return clock_.now() - now > Duration{10 * kSecond.ns}; }));
  EXPECT_TRUE(to_.is_all(7)) << "what it still sends goes nowhere";
}

INSTANTIATE_TEST_SUITE_P(All, PeerProcess, testing::Values("tcp", "shared"));

}  // namespace
}  // namespace plexrl::transport
