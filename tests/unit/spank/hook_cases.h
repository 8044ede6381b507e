// SPDX-License-Identifier: Apache-2.0
// The table of submissions and changes run through a hook as slurmctld calls it.
#pragma once

#include <functional>
#include <string>

#include "description.h"

namespace plexrl::job_submit {

struct HookAnswer {
  int code = 0;
  std::string text;  // for the user; empty where there is none
};
using SubmitHook = std::function<HookAnswer(Description& job, std::uint32_t submit_uid)>;
// `text` is compared unless the hook cannot give one.
using ModifyHook =
    std::function<HookAnswer(Description& change, Description& job, std::uint32_t uid)>;

// The site file of the cases, found by this process and what it loads. Call before the first hook.
void use_cases_site();
void check_submissions(const SubmitHook& hook);
void check_changes(const ModifyHook& hook, bool gives_text);

}  // namespace plexrl::job_submit
