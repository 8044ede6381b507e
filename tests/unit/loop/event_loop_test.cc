// SPDX-License-Identifier: Apache-2.0
#include "loop/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <thread>

namespace plexrl::loop {
namespace {

class EventLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = EventLoop::create();
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    loop_ = std::move(made).value();
  }
  // Turns the loop until the condition holds or 10 seconds have passed.
  template <class Condition>
  bool turn_until(Condition condition) {
    const TimePoint end = system_clock().now() + Duration{10 * kSecond.ns};
    while (!condition() && system_clock().now() < end)
      EXPECT_TRUE(loop_->run_once(Duration{10 * kMillisecond.ns}).has_value());
    return condition();
  }
  std::unique_ptr<EventLoop> loop_;
};

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    read.reset(fds[0]);
    write.reset(fds[1]);
  }
};

TEST_F(EventLoopTest, IoWatchFiresWhileTheDescriptorIsReady) {
  Pipe pipe;
  int calls = 0;
  const auto watch = loop_->watch_io(pipe.read.get(), EPOLLIN, [&](std::uint32_t events) {
    EXPECT_TRUE(events & EPOLLIN);
    ++calls;
  });
  ASSERT_TRUE(watch.has_value());
  EXPECT_FALSE(*loop_->run_once(Duration{0}));
  ASSERT_EQ(::write(pipe.write.get(), "x", 1), 1);
  EXPECT_TRUE(turn_until([&] { return calls == 2; }));
}

TEST_F(EventLoopTest, PausedWatchIsSilentUntilResumed) {
  Pipe pipe;
  int calls = 0;
  auto watch = loop_->watch_io(pipe.read.get(), EPOLLIN, [&](std::uint32_t) { ++calls; });
  ASSERT_EQ(::write(pipe.write.get(), "x", 1), 1);
  watch->set_events(0);
  EXPECT_FALSE(*loop_->run_once(Duration{0}));
  watch->set_events(EPOLLIN);
  EXPECT_TRUE(turn_until([&] { return calls == 1; }));
}

TEST_F(EventLoopTest, AWatchMayEndItselfInItsCallback) {
  Pipe pipe;
  IoWatch watch;
  int calls = 0;
  auto state = std::make_shared<int>(5);
  auto made = loop_->watch_io(pipe.read.get(), EPOLLIN, [&, state](std::uint32_t) {
    watch.reset();
    calls += *state;  // the captures live until the callback returns
  });
  ASSERT_TRUE(made.has_value());
  watch = std::move(made).value();
  ASSERT_EQ(::write(pipe.write.get(), "x", 1), 1);
  EXPECT_TRUE(turn_until([&] { return calls == 5; }));
  EXPECT_FALSE(*loop_->run_once(Duration{0}));
}

TEST_F(EventLoopTest, TimerFiresOnceAtItsTimeAndCanBeArmedAgain) {
  int calls = 0;
  auto timer = loop_->make_timer([&] { ++calls; });
  ASSERT_TRUE(timer.has_value());
  EXPECT_FALSE(*loop_->run_once(Duration{0}));  // not armed yet
  const TimePoint when = system_clock().now() + Duration{20 * kMillisecond.ns};
  timer->arm(when);
  EXPECT_TRUE(turn_until([&] { return calls == 1; }));
  EXPECT_GE(system_clock().now(), when);
  EXPECT_FALSE(*loop_->run_once(Duration{5 * kMillisecond.ns}));
  timer->arm(system_clock().now());
  EXPECT_TRUE(turn_until([&] { return calls == 2; }));
}

TEST_F(EventLoopTest, DisarmedTimerDoesNotFire) {
  int calls = 0;
  auto timer = loop_->make_timer([&] { ++calls; });
  timer->arm(system_clock().now());
  timer->disarm();
  EXPECT_FALSE(*loop_->run_once(Duration{5 * kMillisecond.ns}));
  EXPECT_EQ(calls, 0);
}

TEST_F(EventLoopTest, PostsRunInOrderAndNotInsideTheCall) {
  std::vector<int> order;
  loop_->post([&] {
    loop_->post([&] { order.push_back(3); });
    order.push_back(1);
  });
  loop_->post([&] { order.push_back(2); });
  EXPECT_TRUE(order.empty());
  EXPECT_TRUE(turn_until([&] { return order.size() == 3; }));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(EventLoopTest, PostFromOtherThreadsWakesTheLoop) {
  int sum = 0;  // loop thread only
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) loop_->post([&] { ++sum; });
    });
  EXPECT_TRUE(turn_until([&] { return sum == 4000; }));
  for (std::thread& thread : threads) thread.join();
}

// Posts again whenever it runs.
struct Chain {
  EventLoop& loop;
  int runs = 0;
  void run() {
    ++runs;
    loop.post([this] { run(); });
  }
};

TEST_F(EventLoopTest, PostsOfPostsShareATurn) {
  Chain chain{*loop_};
  chain.run();
  ASSERT_TRUE(*loop_->run_once(kSecond));
  EXPECT_GT(chain.runs, 2);
}

TEST_F(EventLoopTest, EndlessPostsDoNotStarveDescriptors) {
  Pipe pipe;
  int calls = 0;
  const auto watch = loop_->watch_io(pipe.read.get(), EPOLLIN, [&](std::uint32_t) { ++calls; });
  ASSERT_TRUE(watch.has_value());
  Chain chain{*loop_};
  chain.run();
  ASSERT_EQ(::write(pipe.write.get(), "x", 1), 1);
  EXPECT_TRUE(turn_until([&] { return calls > 0; }));
}

TEST_F(EventLoopTest, ExitEndsEndlessPosts) {
  Chain chain{*loop_};
  chain.run();
  loop_->post([&] { loop_->exit(7); });
  EXPECT_EQ(*loop_->run(), 7);
  EXPECT_EQ(chain.runs, 2);
}

TEST_F(EventLoopTest, SignalIsACallback) {
  int calls = 0;
  const auto watch = loop_->watch_signal(SIGUSR1, [&] { ++calls; });
  ASSERT_TRUE(watch.has_value());
  ::kill(::getpid(), SIGUSR1);
  EXPECT_TRUE(turn_until([&] { return calls == 1; }));
}

TEST_F(EventLoopTest, ExitOfAChildIsReportedOnceWithItsCode) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(7);
  std::vector<ExitStatus> seen;
  const auto watch = loop_->watch_process(pid, [&](ExitStatus status) { seen.push_back(status); });
  ASSERT_TRUE(watch.has_value());
  EXPECT_TRUE(turn_until([&] { return !seen.empty(); }));
  EXPECT_EQ(seen[0].code, 7);
  EXPECT_FALSE(*loop_->run_once(Duration{0}));
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);  // reaped
}

TEST_F(EventLoopTest, KilledChildIsReportedWithItsSignal) {
  const pid_t pid = ::fork();
  if (pid == 0)
    while (true) ::pause();
  std::optional<ExitStatus> seen;
  const auto watch = loop_->watch_process(pid, [&](ExitStatus status) { seen = status; });
  ASSERT_TRUE(watch.has_value());
  EXPECT_FALSE(*loop_->run_once(Duration{0}));
  EXPECT_EQ(watch->kill(SIGKILL), 0);
  EXPECT_TRUE(turn_until([&] { return seen.has_value(); }));
  EXPECT_EQ(seen->signal, SIGKILL);
  EXPECT_FALSE(seen->code.has_value());
}

TEST_F(EventLoopTest, WatchOfAProcessThatIsNotThere) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(loop_->watch_process(pid, [](ExitStatus) {}).error().code(), Code::NOT_FOUND);
}

TEST_F(EventLoopTest, RunReturnsTheExitCode) {
  loop_->post([&] { loop_->exit(42); });
  EXPECT_EQ(*loop_->run(), 42);
}

// What outlives the loop's run may still end ops, which arms timers.
TEST_F(EventLoopTest, AfterTheEndTimersAndWatchesAreSilent) {
  Pipe pipe;
  int calls = 0;
  auto watch = loop_->watch_io(pipe.read.get(), EPOLLIN, [&](std::uint32_t) { ++calls; });
  auto timer = loop_->make_timer([&] { ++calls; });
  ASSERT_TRUE(watch && timer);
  loop_->exit(0);
  ASSERT_EQ(*loop_->run(), 0);
  timer->arm(system_clock().now());
  watch->set_events(EPOLLOUT);
  timer->disarm();
  loop_->post([&] { ++calls; });
  EXPECT_EQ(loop_->watch_io(pipe.write.get(), EPOLLOUT, [&](std::uint32_t) {}).error().code(),
            Code::IO);
  EXPECT_EQ(calls, 0);
}

TEST_F(EventLoopTest, WatchOfABadDescriptorIsAnError) {
  EXPECT_EQ(loop_->watch_io(-1, EPOLLIN, [](std::uint32_t) {}).error().code(), Code::IO);
}

TEST_F(EventLoopTest, AnExceptionInACallbackEndsTheProcessWithItsText) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a loop does not survive a fork
  loop_->post([] { throw std::runtime_error("from a callback"); });
  EXPECT_DEATH((void)loop_->run_once(Duration{0}), "from a callback");
}

TEST(PassedFds, NoneOutsideOfSystemd) {
  ::unsetenv("LISTEN_FDS");
  const auto passed = take_passed_fds();
  ASSERT_TRUE(passed.has_value());
  EXPECT_TRUE(passed->empty());
}

}  // namespace
}  // namespace plexrl::loop
