// SPDX-License-Identifier: Apache-2.0
// Commands that talk to a service, against a fake one and a fake scontrol.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/commands.h"
#include "fakes/fake_service.h"
#include "nlohmann/json.hpp"

namespace plexrl::cli {
namespace {

struct Outcome {
  int exit_status;
  std::string out;
  std::string err;
};

Outcome run(std::vector<std::string> arguments) {
  std::vector<const char*> argv{"plexrl"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int exit_status = run_program(static_cast<int>(argv.size()), argv.data());
  std::string out = testing::internal::GetCapturedStdout();
  return {exit_status, out, testing::internal::GetCapturedStderr()};
}

TEST(ServiceCommands, PrintTheDaemonsDocument) {
  fakes::FakeService service;
  for (const char* command : {"status", "jobs", "ops"}) {
    const Outcome outcome = run({command, "--json", "--socket", service.socket()});
    EXPECT_EQ(outcome.exit_status, kExitOk) << outcome.err;
    EXPECT_TRUE(nlohmann::json::accept(outcome.out)) << outcome.out;
    EXPECT_TRUE(outcome.err.empty());
  }
}

TEST(ServiceCommands, NobodyListensIsAFailureWithThePath) {
  for (const char* command : {"status", "jobs", "ops", "drain", "resume", "reload"}) {
    const Outcome outcome = run({command, "--json", "--socket", "/nonexistent/socket"});
    EXPECT_EQ(outcome.exit_status, kExitFailed);
    EXPECT_TRUE(outcome.out.empty());
    EXPECT_NE(outcome.err.find("/nonexistent/socket"), std::string::npos);
  }
}

TEST(ServiceCommands, WhereNobodyIsAskedByNameTheNodeOfAJobIsPointedTo) {
  setenv("PLEXRL_CONFIG", "/nonexistent/plexrl.yaml", 1);
  const Outcome login = run({"jobs"});
  unsetenv("PLEXRL_CONFIG");
  EXPECT_EQ(login.exit_status, kExitFailed);
  EXPECT_NE(login.err.find("srun --jobid=JOB --overlap"), std::string::npos) << login.err;
  EXPECT_EQ(run({"jobs", "--socket", "/nonexistent/socket"}).err.find("srun"), std::string::npos);
}

TEST(ServiceCommands, ReportNeedsAJobOrALog) {
  EXPECT_EQ(run({"report"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"report", "seven"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"report", "0"}).exit_status, kExitUsage);
  const Outcome task = run({"report", "11_2"});
  EXPECT_EQ(task.exit_status, kExitUsage);
  EXPECT_NE(task.err.find("write its own job id"), std::string::npos) << task.err;
  EXPECT_EQ(run({"report", "11_"}).err.find("write its own job id"), std::string::npos);
  EXPECT_EQ(run({"report", "7", "--html", "page"}).exit_status, kExitUsage);
  const Outcome missing = run({"report", "--train", "/nonexistent/log"});
  EXPECT_EQ(missing.exit_status, kExitFailed);
  EXPECT_NE(missing.err.find("/nonexistent/log"), std::string::npos) << missing.err;
}

TEST(ServiceCommands, EvictNeedsAJob) {
  EXPECT_EQ(run({"evict"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"evict", "0"}).exit_status, kExitUsage);
}

TEST(ServiceCommands, BenchesTakeWrongValuesForWrongUse) {
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{"bench", "sched", "--steps", "0"}, Words{"bench", "sched", "--tenants", "0"},
        Words{"bench", "sched", "--tenants", "5", "--ops", "4"},
        Words{"bench", "swap", "--max-mib", "0"}, Words{"bench", "swap", "--max-mib", "1048577"},
        Words{"bench", "swap", "--repeats", "0"}, Words{"bench", "swap", "--repeats", "1001"},
        Words{"bench", "decode", "--threads", "0"}, Words{"bench", "decode", "--dtype", "int8"}})
    EXPECT_EQ(run(words).exit_status, kExitUsage) << words[2] << " " << words[3];
}

TEST(ServiceCommands, JobOpenChecksTheGrantFirst) {
  const Outcome outcome =
      run({"job", "open", "--job-id", "7", "--user", "root", "--grant", "v1:all"});
  EXPECT_EQ(outcome.exit_status, kExitFailed);
  EXPECT_NE(outcome.err.find("--grant"), std::string::npos);
}

TEST(ServiceCommands, TrainChecksItsOptions) {
  EXPECT_EQ(run({"train", "--resume"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"train", "--samples", "0"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"train", "--lr", "-1"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"train", "--train", "both"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"train", "--format", "weights"}).exit_status, kExitUsage);
}

// Not only what is wrong in one option.
TEST(ServiceCommands, TrainSeesOptionsThatDoNotGoTogetherBeforeItRuns) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--env", "chess"}, "--env 'chess'"},
      {{"--env", "countdown:x"}, "countdown"},
      {{"--env", "sort", "--verifier", "cat"}, "--verifier"},
      {{"--minibatches", "9", "--prompts", "2", "--samples", "4"}, "--minibatches 9"},
      {{"--algo", "rloo", "--clip-low", "0.5"}, "--clip-low"},
  };
  for (const auto& [options, word] : cases) {
    std::vector<std::string> arguments = {"train"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_status, kExitUsage) << word;
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("plexrl train --help"), std::string::npos) << outcome.err;
  }
}

TEST(ServiceCommands, TrainSaysShortlyThatANumberIsNotOne) {
  for (const char* option : {"--lr", "--sft-lr", "--temperature"})
    for (const char* value : {"0", "-1", "x", "inf", "nan"}) {
      const Outcome outcome = run({"train", option, value});
      EXPECT_EQ(outcome.exit_status, kExitUsage) << option << " " << value;
      EXPECT_NE(outcome.err.find("above 0"), std::string::npos) << outcome.err;
      EXPECT_LT(outcome.err.size(), 120U);
    }
  EXPECT_EQ(run({"train", "--grad-clip", "-1"}).exit_status, kExitUsage);
  EXPECT_EQ(run({"train", "--grad-clip", "0"}).exit_status, kExitFailed);  // not in a job
}

TEST(ServiceCommands, TrainWarnsOfGroupsOfOne) {
  EXPECT_NE(run({"train", "--samples", "1"}).err.find("--samples 1"), std::string::npos);
  EXPECT_EQ(run({"train", "--samples", "2"}).err.find("--samples"), std::string::npos);
}

TEST(ServiceCommands, LeaseTakesSizesWithAUnit) {
  EXPECT_EQ(run({"lease", "run", "--device-bytes", "1G", "--", "true"}).exit_status, kExitFailed);
  EXPECT_EQ(run({"lease", "run", "--device-bytes", "1X", "--", "true"}).exit_status, kExitUsage);
}

TEST(ServiceCommands, TrainKnowsBeforeItStartsThatItCannotWrite) {
  for (const char* option : {"--summary", "--checkpoint", "--save", "--log"}) {
    const Outcome outcome = run({"train", option, "/nonexistent/file"});
    EXPECT_EQ(outcome.exit_status, kExitFailed);
    EXPECT_NE(outcome.err.find("/nonexistent/file"), std::string::npos) << outcome.err;
  }
}

// scontrol that shows one node and notes what it is told to change.
class NodeCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-node-check-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    std::ofstream(path("site.yaml"))
        << "cluster: c\npools:\n  - name: rl\n    partition: p\n"
           "    nodes: n1\n    models: demo\n    host_memory_mib: 512\n"
           "    device_memory_mib: 64\n    activation_memory_mib: 16\n"
           "models:\n  - name: demo\n    path: /m\n    parameters: 6\n"
           "    hidden_size: 4\n    layers: 1\n    intermediate_size: 8\n";
    std::ofstream(path("scontrol"))
        << "#!/bin/sh\ncase $1 in\n  show) cat " << path("node") << ";;\n  update) echo \"$@\" >>"
        << path("updates") << ";;\n  *) exit 3;;\nesac\n";
    std::ofstream(path("squeue")) << "#!/bin/sh\ncat " << path("comments") << "\n";
    for (const char* program : {"scontrol", "squeue"})
      std::filesystem::permissions(path(program), std::filesystem::perms::owner_all);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(const char* name) const { return directory_ + "/" + name; }
  Outcome check(const std::string& socket, const std::string& state, const char* node = "n1") {
    std::ofstream(path("node")) << "NodeName=" << node << " " << state << " ThreadsPerCore=1\n";
    return run({"node-check", "--json", "--config", path("site.yaml"), "--node", node, "--scontrol",
                path("scontrol"), "--squeue", path("squeue"), "--socket", socket, "--timeout",
                "1"});
  }
  std::string updates() const {
    std::ifstream file(path("updates"));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
};

TEST_F(NodeCheckTest, DrainsWhenTheServiceIsDown) {
  const Outcome outcome = check("/nonexistent/socket", "State=IDLE");
  ASSERT_EQ(outcome.exit_status, kExitOk) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["action"], "drained");
  EXPECT_EQ(updates(),
            "update NodeName=n1 State=DRAIN Reason=plexrl-node-check: plexrld does not answer\n");
}

TEST_F(NodeCheckTest, ResumesWhenItIsBack) {
  fakes::FakeService service;
  const Outcome outcome = check(service.socket(), "State=IDLE+DRAIN Reason=plexrl-node-check: x");
  ASSERT_EQ(outcome.exit_status, kExitOk) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["action"], "resumed");
  EXPECT_EQ(updates(), "update NodeName=n1 State=RESUME\n");
}

TEST_F(NodeCheckTest, LeavesOthersDrainsAndOtherNodesAlone) {
  fakes::FakeService service;
  EXPECT_EQ(check(service.socket(), "State=IDLE+DRAIN Reason=disk").exit_status, kExitOk);
  EXPECT_EQ(check("/nonexistent/socket", "State=IDLE+DRAIN Reason=disk").exit_status, kExitOk);
  EXPECT_EQ(check("/nonexistent/socket", "State=IDLE", "login1").exit_status, kExitOk);
  EXPECT_EQ(updates(), "");
}

TEST_F(NodeCheckTest, KeepsTheFeaturesOfThePoolTrue) {
  fakes::FakeService service;
  const std::string both = "plexrl_rl_for_rollout,plexrl_rl_for_training";
  std::ofstream(path("comments")) << "(null)\nplexrl: mostly rollout\n";
  const Outcome outcome = check(
      service.socket(), "State=MIXED AvailableFeatures=ib," + both + " ActiveFeatures=ib," + both);
  ASSERT_EQ(outcome.exit_status, kExitOk) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["takes"], nlohmann::json({"training"}));
  EXPECT_EQ(updates(), "update NodeName=n1 ActiveFeatures=ib,plexrl_rl_for_training\n");
}

TEST_F(NodeCheckTest, AFailingScontrolIsAFailure) {
  std::ofstream(path("scontrol")) << "#!/bin/sh\nexit 1\n";
  EXPECT_EQ(check("/nonexistent/socket", "State=IDLE").exit_status, kExitFailed);
}

TEST_F(NodeCheckTest, ANodeNameIsNotShellText) {
  const Outcome outcome = check("/nonexistent/socket", "State=IDLE", "n1;reboot");
  EXPECT_EQ(outcome.exit_status, kExitFailed);
  EXPECT_NE(outcome.err.find("not a node name"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::cli
