// SPDX-License-Identifier: Apache-2.0
#include "cli/train/verifier.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "cli/bounded_command.h"

namespace plexrl::cli {
namespace {

const Problem kProblem{"1+1=", "2"};

Result<double> verify(const std::string& command, double timeout_s = 5.0) {
  return Verifier(command, timeout_s, 1).verify({&kProblem, "2", true});
}

TEST(Verifier, ExitStatusIsTheVerdict) {
  EXPECT_EQ(verify("exit 0").value(), 1.0);
  EXPECT_EQ(verify("exit 1").value(), 0.0);
}

TEST(Verifier, ANumberIsTheReward) {
  EXPECT_EQ(verify("echo 0.25").value(), 0.25);
  EXPECT_EQ(verify("printf ' -1\\n'").value(), -1.0);
}

TEST(Verifier, SeesTheAnswerAsJson) {
  EXPECT_EQ(verify(R"(grep -q '"completion":"2"')").value(), 1.0);
  EXPECT_EQ(verify(R"(grep -q '"completion":"3"')").value(), 0.0);
}

TEST(Verifier, SeesTheMessages) {
  const Problem problem{"b", "2", {{"system", "a"}, {"user", "b"}}};
  const std::string check =
      R"(grep -q '"messages":\[{"content":"a","role":"system"},{"content":"b","role":"user"}\]')";
  EXPECT_EQ(Verifier(check, 5.0, 1).verify({&problem, "2", true}).value(), 1.0);
  EXPECT_EQ(verify(check).value(), 0.0);
}

TEST(Verifier, BrokenChecksAreNotRewards) {
  EXPECT_FALSE(verify("exit 2").has_value());
  EXPECT_FALSE(verify("no-such-command-at-all 2>/dev/null").has_value());
  EXPECT_FALSE(verify("echo yes").has_value());
  EXPECT_FALSE(verify("echo nan").has_value());
  EXPECT_FALSE(verify("echo 1 2").has_value());
  EXPECT_FALSE(verify("kill -9 $$").has_value());
}

TEST(Verifier, TimeLimitEndsTheWholeProcessGroup) {
  const TimePoint start = system_clock().now();
  const auto result = verify("sleep 30 & sleep 30", 0.2);
  EXPECT_EQ(result.error().code(), Code::TIMEOUT);
  EXPECT_LT((system_clock().now() - start).ns, 5 * kSecond.ns);
}

TEST(Verifier, WhatItLeavesInTheBackgroundIsKilled) {
  const auto result = run_bounded("sleep 300 & echo $!", "", kSecond, 100);
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
  const pid_t background = std::atoi(result->output.c_str());
  ASSERT_GT(background, 1);
  // The orphan is reaped by init; until then it is a zombie, which kill() still finds.
  for (int i = 0; i < 100; ++i) {
    if (::kill(background, 0) != 0) break;
    const std::string state =
        run_bounded("cut -d' ' -f3 /proc/" + std::to_string(background) + "/stat 2>/dev/null; true",
                    "", kSecond, 100)
            ->output;
    if (state.starts_with("Z") || state.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_LT(i, 99) << "still there in state " << state;
  }
}

TEST(Verifier, OutputIsBounded) { EXPECT_EQ(verify("yes").error().code(), Code::TOO_LARGE); }

TEST(Verifier, InputThatIsNotReadDoesNotBlock) {
  const auto result = run_bounded("true", std::string(1 << 20, 'x'), kSecond, 10);
  EXPECT_TRUE(result.has_value());
}

TEST(Verifier, ScoresInOrderWithSeveralAtATime) {
  std::vector<Attempt> attempts;
  for (const char* completion : {"1", "2", "3", "4"})
    attempts.push_back({&kProblem, completion, true});
  const auto rewards =
      Verifier(R"x(sed 's/.*"completion":"\([0-9]\)".*/\1/')x", 5.0, 3).score(attempts);
  ASSERT_TRUE(rewards.has_value());
  EXPECT_EQ(*rewards, (std::vector<double>{1, 2, 3, 4}));
}

TEST(Verifier, ABatchWithoutOneGoodCheckStopsTheRun) {
  const std::vector<Attempt> attempts(3, Attempt{&kProblem, "2", true});
  const auto rewards = Verifier("exit 7", 5.0, 1).score(attempts);
  ASSERT_FALSE(rewards.has_value());
  EXPECT_NE(rewards.error().text().find("exit status 7"), std::string::npos);
}

TEST(Verifier, SomeBrokenChecksCountAsZeroAndAreReported) {
  const Problem other{"x", "y"};
  const std::vector<Attempt> attempts = {{&kProblem, "2", true}, {&kProblem, "boom", true}};
  testing::internal::CaptureStderr();
  const auto rewards = Verifier("if grep -q boom; then exit 9; fi", 5.0, 1).score(attempts);
  const std::string progress = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(rewards.has_value());
  EXPECT_EQ(*rewards, (std::vector<double>{1, 0}));
  EXPECT_NE(progress.find("1 of 2 checks broken"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::cli
