// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
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

TEST(Program, UsageErrorsNameTheProgramAndTheHelpOfItsCommand) {
  const Outcome option = run({"config", "check", "--jsno"});
  EXPECT_EQ(option.exit_status, kExitUsage);
  EXPECT_EQ(option.err.rfind("plexrl: ", 0), 0U) << option.err;
  EXPECT_NE(option.err.find("--jsno"), std::string::npos) << option.err;
  EXPECT_NE(option.err.find("'plexrl config check --help'"), std::string::npos) << option.err;
  EXPECT_EQ(option.err.find("options follow"), std::string::npos) << option.err;
  EXPECT_NE(run({"--json", "status"}).err.find("options follow the command"), std::string::npos);
  EXPECT_NE(run({}).err.find("'plexrl --help'"), std::string::npos);
}

// A named file may lie anywhere, but whoever means to install it is told what would be refused.
TEST(Program, CheckWarnsOfAFileThatOthersMayWrite) {
  char name[] = "/tmp/plexrl-check-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string path = std::string(name) + "/site.yaml";
  std::ofstream(path) << "cluster: c\npools:\n  - name: rl\n    partition: p\n    nodes: n1\n"
                         "    models: demo\n    host_memory_mib: 512\n"
                         "    device_memory_mib: 64\n    activation_memory_mib: 16\n"
                         "models:\n  - name: demo\n    path: /m\n    parameters: 6\n"
                         "    hidden_size: 4\n    layers: 1\n    intermediate_size: 8\n";
  std::filesystem::permissions(path, std::filesystem::perms{0644});
  const Outcome good = run({"config", "check", path.c_str()});
  std::filesystem::permissions(path, std::filesystem::perms{0666});
  const Outcome open = run({"config", "check", path.c_str()});
  std::filesystem::remove_all(name);
  EXPECT_EQ(good.exit_status, kExitOk);
  EXPECT_TRUE(good.err.empty()) << good.err;
  EXPECT_EQ(open.exit_status, kExitOk);
  EXPECT_NE(open.err.find("chmod go-w"), std::string::npos) << open.err;
}

TEST(Program, CheckWarnsOfUsersAndGroupsThatAreUnknownHere) {
  char name[] = "/tmp/plexrl-check-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string path = std::string(name) + "/site.yaml";
  std::ofstream(path) << "cluster: c\npools:\n  - name: rl\n    partition: p\n    nodes: n1\n"
                         "    users: [root, no-such-user]\n    groups: [no-such-group]\n"
                         "    models: demo\n    host_memory_mib: 512\n"
                         "    device_memory_mib: 64\n    activation_memory_mib: 16\n"
                         "models:\n  - name: demo\n    path: /m\n    parameters: 6\n"
                         "    hidden_size: 4\n    layers: 1\n    intermediate_size: 8\n";
  const Outcome outcome = run({"config", "check", path.c_str()});
  std::filesystem::remove_all(name);
  EXPECT_EQ(outcome.exit_status, kExitOk);
  EXPECT_NE(outcome.err.find("pool 'rl': this host has no user 'no-such-user'"), std::string::npos);
  EXPECT_NE(outcome.err.find("pool 'rl': this host has no group 'no-such-group'"),
            std::string::npos);
  EXPECT_EQ(outcome.err.find("'root'"), std::string::npos) << outcome.err;
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
