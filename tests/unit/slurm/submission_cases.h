// SPDX-License-Identifier: Apache-2.0
// The table of submissions and changes of jobs, and what becomes of each. One table for the pure
// functions, for the native job_submit plugin and for the module of a site's job_submit.lua.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "slurm/modify.h"
#include "slurm/rewrite.h"

namespace plexrl::slurm {

// The site of the cases, as a file: pool rl for everybody, pool closed for bob and group rlvr.
extern const char* const kCasesSite;
// What earlier runs of kCasesUid's jobs told, as a file.
extern const char* const kCasesProfiles;
constexpr std::uint32_t kCasesUid = 65534;

void set(JobRequest* request, Option option, const char* value);
// A batch job of a pool; null leaves the option out.
[[nodiscard]] JobRequest batch(const char* pool = "rl", const char* models = "tiny");

// Each changes batch(), submitted by kCasesUid, who may use pool rl only.
struct Refusal {
  const char* name;
  std::function<void(JobRequest*)> change;
  const char* says;  // part of the text
};
struct Acceptance {
  const char* name;
  std::function<void(JobRequest*)> change;
  const char* grant;  // its text, empty for an ordinary job
  const char* partition;
  const char* tres_per_node;
  const char* other_tres;  // per job, socket and task, one after the other
  std::vector<std::string> environment;
  const char* note = "";    // all of the text for the user
  const char* prefer = "";  // node feature
  const char* mark = "";    // for AdminComment
};
[[nodiscard]] const std::vector<Refusal>& refusals();
[[nodiscard]] const std::vector<Acceptance>& acceptances();

// A change of a job of pool rl (or of an ordinary job) by its user.
struct Change {
  const char* name;
  bool pool_job;
  std::function<void(ModifyRequest*)> change;
  const char* says;  // part of the text; null: allowed
};
[[nodiscard]] const std::vector<Change>& changes();

}  // namespace plexrl::slurm
