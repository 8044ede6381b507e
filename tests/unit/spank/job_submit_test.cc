// SPDX-License-Identifier: Apache-2.0
// The native plugin, called as slurmctld does.
#include <gtest/gtest.h>

#include "../slurm/submission_cases.h"
#include "hook_cases.h"
#include "slurm_fakes.h"

extern "C" {
int job_submit(job_desc_msg_t* description, std::uint32_t submit_uid, char** err_msg);
int job_modify(job_desc_msg_t* description, job_record* record, std::uint32_t uid);
extern const std::uint32_t plugin_version;
}

namespace plexrl::job_submit {
namespace {

const bool kSite = (use_cases_site(), true);

TEST(JobSubmit, IsLoadedByExactlyThisRelease) { EXPECT_EQ(plugin_version, SLURM_VERSION_NUMBER); }

TEST(JobSubmit, DoesWhatTheTableSays) {
  ASSERT_TRUE(kSite);
  check_submissions([](Description& job, std::uint32_t uid) {
    char* text = nullptr;
    HookAnswer answer;
    answer.code = ::job_submit(&job.d, uid, &text);
    if (text != nullptr) answer.text = text;
    std::free(text);
    return answer;
  });
}

// Slurm refuses a job whose preference no node fulfils when it is submitted.
TEST(JobSubmit, PrefersNothingThatNoNodeHas) {
  slurm::JobRequest request = slurm::batch();
  request.name = "grpo";
  for (const bool active : {true, false}) {
    fake_active_features(active);
    Description job(request);
    job.d.admin_comment = ::strdup("of another plugin");
    char* text = nullptr;
    EXPECT_EQ(::job_submit(&job.d, slurm::kCasesUid, &text), SLURM_SUCCESS);
    std::free(text);
    EXPECT_EQ(job.d.prefer != nullptr, active);
    EXPECT_STREQ(job.d.admin_comment, "of another plugin; plexrl: mostly rollout");
  }
  fake_active_features(true);
}

TEST(JobSubmit, AllowsTheChangesOfTheTable) {
  check_changes(
      [](Description& change, Description& job, std::uint32_t uid) {
        return HookAnswer{::job_modify(&change.d, reinterpret_cast<job_record*>(&job), uid), ""};
      },
      false);
}

}  // namespace
}  // namespace plexrl::job_submit
