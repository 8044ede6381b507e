// SPDX-License-Identifier: Apache-2.0
#include "hook_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "../slurm/submission_cases.h"
#include "slurm/options.h"

namespace plexrl::job_submit {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

using slurm::kCasesUid;

std::string text(const char* field) { return field != nullptr ? field : ""; }

// The text of --plexrl-pool that the nodes will see.
std::string pool_text(const Description& job) {
  const std::string name = "_SLURM_SPANK_OPTION_plexrl_plexrl_pool=";
  for (std::uint32_t i = 0; i < job.d.spank_job_env_size; ++i)
    if (text(job.d.spank_job_env[i]).starts_with(name))
      return text(job.d.spank_job_env[i]).substr(name.size());
  return "";
}

void expect_result(const slurm::Acceptance& c, const Description& job) {
  EXPECT_EQ(pool_text(job), c.grant) << c.name;
  EXPECT_EQ(text(job.d.partition), c.partition) << c.name;
  EXPECT_EQ(text(job.d.tres_per_node), c.tres_per_node) << c.name;
  EXPECT_EQ(text(job.d.tres_per_job) + text(job.d.tres_per_socket) + text(job.d.tres_per_task),
            c.other_tres)
      << c.name;
  EXPECT_THAT(job.environment(), ElementsAreArray(c.environment)) << c.name;
  EXPECT_EQ(text(job.d.prefer), c.prefer) << c.name;
  EXPECT_EQ(text(job.d.admin_comment), c.mark) << c.name;
  if (*c.grant == '\0') return;
  EXPECT_EQ(job.d.min_nodes, 1U) << c.name;
  EXPECT_EQ(job.d.max_nodes, 1U) << c.name;
  EXPECT_EQ(text(job.d.tres_bind), "") << c.name;
}

class CasesSite : public ::testing::Environment {
 public:
  void SetUp() override {
    char name[] = "/tmp/plexrl-cases-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    std::ofstream(top_ + "/plexrl.yaml") << slurm::kCasesSite;
    std::ofstream(top_ + "/profiles") << slurm::kCasesProfiles;
    ::setenv("PLEXRL_CONFIG", (top_ + "/plexrl.yaml").c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(top_); }

 private:
  std::string top_;
};

}  // namespace

void use_cases_site() { ::testing::AddGlobalTestEnvironment(new CasesSite); }

void check_submissions(const SubmitHook& hook) {
  for (const slurm::Refusal& c : slurm::refusals()) {
    slurm::JobRequest request = slurm::batch();
    c.change(&request);
    Description job(request);
    const HookAnswer answer = hook(job, kCasesUid);
    EXPECT_EQ(answer.code, ESLURM_ACCESS_DENIED) << c.name;
    EXPECT_THAT(answer.text, HasSubstr(c.says)) << c.name;
    EXPECT_EQ(text(job.d.partition), request.partition) << c.name;
  }
  for (const slurm::Acceptance& c : slurm::acceptances()) {
    slurm::JobRequest request = slurm::batch();
    c.change(&request);
    Description job(request);
    const HookAnswer answer = hook(job, kCasesUid);
    EXPECT_EQ(answer.code, SLURM_SUCCESS) << c.name << ": " << answer.text;
    EXPECT_EQ(answer.text, *c.note == '\0' ? "" : std::string("plexrl: ") + c.note) << c.name;
    expect_result(c, job);
  }
}

void check_changes(const ModifyHook& hook, bool gives_text) {
  Description pool_job, ordinary_job;
  pool_job.options({"_SLURM_SPANK_OPTION_plexrl_plexrl_pool=" +
                    std::string(slurm::acceptances().front().grant)});
  for (const slurm::Change& c : slurm::changes()) {
    slurm::ModifyRequest request;
    c.change(&request);
    Description change(request);
    Description& job = c.pool_job ? pool_job : ordinary_job;
    const HookAnswer answer = hook(change, job, kCasesUid);
    EXPECT_EQ(answer.code, c.says == nullptr ? SLURM_SUCCESS : ESLURM_ACCESS_DENIED) << c.name;
    if (gives_text && c.says != nullptr) {
      EXPECT_THAT(answer.text, HasSubstr(c.says)) << c.name;
    }
    EXPECT_EQ(hook(change, job, 0).code, SLURM_SUCCESS) << c.name << ", by root";
  }
}

}  // namespace plexrl::job_submit
