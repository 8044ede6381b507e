// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "config.h"

namespace plexrl::cli {
namespace {

struct Outcome {
  int exit_status;
  std::string out;
  std::string err;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "plexrl");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int exit_status = run_program(static_cast<int>(arguments.size()), arguments.data());
  std::string out = testing::internal::GetCapturedStdout();
  return {exit_status, out, testing::internal::GetCapturedStderr()};
}

TEST(Program, WithoutACommandIsUsage) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.exit_status, kExitUsage);
  EXPECT_NE(outcome.err.find("subcommand"), std::string::npos);
}

TEST(Program, UnknownCommandAndOptionAreUsage) {
  EXPECT_EQ(run({"frobnicate"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"env", "--no-such-option"}).exit_status, kExitUsage);
}

TEST(Program, AnUnknownCommandIsNamedAndTheNearestIsSuggested) {
  const Outcome near = run({"stauts", "--json"});
  EXPECT_EQ(near.exit_status, kExitUsage);
  EXPECT_TRUE(near.out.empty());
  EXPECT_NE(near.err.find("unknown command 'stauts'"), std::string::npos) << near.err;
  EXPECT_NE(near.err.find("'plexrl status'"), std::string::npos) << near.err;
  const Outcome far = run({"frobnicate"});
  EXPECT_NE(far.err.find("unknown command 'frobnicate'"), std::string::npos) << far.err;
  EXPECT_EQ(far.err.find("mean"), std::string::npos) << far.err;
  const Outcome below = run({"model", "lst"});
  EXPECT_EQ(below.exit_status, kExitUsage);
  EXPECT_NE(below.err.find("unknown command 'model lst'"), std::string::npos) << below.err;
  EXPECT_NE(below.err.find("'plexrl model list'"), std::string::npos) << below.err;
}

// Only the place of a command is looked at.
TEST(Program, OtherErrorsStayAsTheyAre) {
  EXPECT_NE(run({"model"}).err.find("subcommand"), std::string::npos);
  EXPECT_EQ(run({"report", "seven"}).err.find("unknown command"), std::string::npos);
  EXPECT_EQ(run({"env", "--no-such-option"}).err.find("unknown command"), std::string::npos);
}

TEST(Program, HelpAndVersionSucceedOnStdout) {
  EXPECT_EQ(run({"--version"}).out, "plexrl " PACKAGE_VERSION "\n");
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.exit_status, kExitOk);
  EXPECT_NE(help.out.find("env"), std::string::npos);
  EXPECT_TRUE(help.err.empty());
}

TEST(Program, EnvOutsideAJobFailsAndSaysWhatToDo) {
  unsetenv("PLEXRL_SOCKET");
  const Outcome outcome = run({"env", "--json"});
  EXPECT_EQ(outcome.exit_status, kExitFailed);
  EXPECT_TRUE(outcome.out.empty());
  EXPECT_NE(outcome.err.find("--plexrl-pool"), std::string::npos);
}

TEST(Program, EnvInsideAJobPrintsOneJsonDocument) {
  setenv("PLEXRL_SOCKET", "/run/plexrl/plexrld.sock", 1);
  const Outcome outcome = run({"env", "--json"});
  unsetenv("PLEXRL_SOCKET");
  EXPECT_EQ(outcome.exit_status, kExitOk);
  EXPECT_NE(outcome.out.find("\"PLEXRL_SOCKET\": \"/run/plexrl/plexrld.sock\""), std::string::npos);
}

}  // namespace
}  // namespace plexrl::cli
