// SPDX-License-Identifier: Apache-2.0
#include "cli/controller_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "slurm/controller_report.h"
#include "slurm/profile_file.h"

namespace plexrl::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ControllerCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-check-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    site_ = top_ + "/plexrl.yaml";
    profiles_ = slurm::profiles_path(site_);
    controllers_ = {{"ctl1", "ctl2"}, top_ + "/state"};
    std::filesystem::create_directory(controllers_.state_dir);
    std::ofstream(site_) << R"(cluster: c
pools:
  - {name: p, partition: p, nodes: n1, models: m, host_memory_mib: 100, device_memory_mib: 2, activation_memory_mib: 1}
models:
  - {name: m, path: /m, parameters: 1, hidden_size: 1, layers: 1, intermediate_size: 1}
)";
  }
  void TearDown() override { std::filesystem::remove_all(top_); }
  static std::string hash(const std::string& path) {
    const auto value = slurm::file_hash(path);
    return value ? *value : "";
  }
  // As a hook that reads the files of now.
  void tell(const std::string& host) {
    ASSERT_TRUE(slurm::write_report(controllers_.state_dir,
                                    {host, {hash(site_), ""}, {hash(profiles_), ""}})
                    .ok());
  }
  ControllerFindings check() { return check_controllers(site_, controllers_); }

  std::string top_, site_, profiles_;
  Controllers controllers_;
};

TEST_F(ControllerCheck, ControllersAndStateAreTakenFromSlurm) {
  const auto found = parse_controllers(
      "Configuration data as of X\nSlurmctldHost[0]        = ctl(10.77.0.1)\n"
      "SlurmctldHost[1]        = ctl2\nStateSaveLocation       = /var/spool/state\n");
  ASSERT_TRUE(found);
  EXPECT_THAT(found->hosts, ElementsAre("ctl", "ctl2"));
  EXPECT_EQ(found->state_dir, "/var/spool/state");
  EXPECT_FALSE(parse_controllers("slurm_load_ctl_conf error: Unable to contact"));
  EXPECT_FALSE(find_controllers("false"));
}

TEST_F(ControllerCheck, TheSameFilesEverywhereAreGood) {
  tell("ctl1");
  tell("ctl2");
  ControllerFindings findings = check();
  EXPECT_THAT(findings.mistakes, ElementsAre());
  EXPECT_THAT(findings.notes, ElementsAre());
  EXPECT_EQ(findings.document["profiles"]["present"], false);
  ASSERT_TRUE(slurm::write_profiles(profiles_, "plexrl-profiles 1\n").ok());
  tell("ctl1");
  tell("ctl2");
  findings = check();
  EXPECT_THAT(findings.mistakes, ElementsAre());
  EXPECT_EQ(findings.document["ok"], true);
  EXPECT_EQ(findings.document["controllers"].size(), 2U);
  EXPECT_EQ(findings.document["controllers"][1]["same"], true);
}

TEST_F(ControllerCheck, AnotherFileElsewhereIsAMistake) {
  tell("ctl1");
  ASSERT_TRUE(slurm::write_profiles(profiles_, "plexrl-profiles 1\n").ok());
  tell("ctl2");
  EXPECT_THAT(check().mistakes, ElementsAre(HasSubstr("controller ctl1 had no '" + profiles_)));
  std::filesystem::remove(profiles_);
  EXPECT_THAT(check().mistakes, ElementsAre(HasSubstr("controller ctl2 has a '" + profiles_)));
  std::ofstream(site_, std::ios::app) << "# changed\n";
  tell("ctl2");
  EXPECT_THAT(check().mistakes,
              ElementsAre(HasSubstr("controller ctl1 last read another '" + site_)));
}

TEST_F(ControllerCheck, WhatAControllerDoesNotTakeIsAMistake) {
  tell("ctl1");
  ASSERT_TRUE(slurm::write_report(controllers_.state_dir,
                                  {"ctl2", {hash(site_), "can be written by others"}, {"", ""}})
                  .ok());
  EXPECT_THAT(check().mistakes, ElementsAre(HasSubstr("controller ctl2 does not take")));
  EXPECT_EQ(check().document["ok"], false);
}

TEST_F(ControllerCheck, MistakesOfTheFilesHereAreFound) {
  std::ofstream(profiles_) << "plexrl-profiles 1\nnonsense\n";
  tell("ctl1");
  tell("ctl2");
  EXPECT_THAT(check().mistakes, ElementsAre(HasSubstr("1 line is no profile")));
  ASSERT_EQ(::chmod(profiles_.c_str(), 0666), 0);
  EXPECT_THAT(check().mistakes, ElementsAre(HasSubstr("chmod go-w")));
  std::filesystem::remove(profiles_);
  ASSERT_EQ(::chmod(site_.c_str(), 0666), 0);
  tell("ctl1");
  tell("ctl2");
  EXPECT_THAT(check().mistakes, ElementsAre(HasSubstr("chmod go-w")));
}

TEST_F(ControllerCheck, WhatCannotBeSeenIsSaid) {
  tell("ctl1");
  EXPECT_THAT(check().notes, ElementsAre(HasSubstr("controller ctl2 has not told")));
  controllers_.state_dir = top_ + "/other";
  EXPECT_THAT(check().notes, ElementsAre(HasSubstr("run this as root")));
  EXPECT_THAT(check().mistakes, ElementsAre());
}

}  // namespace
}  // namespace plexrl::cli
