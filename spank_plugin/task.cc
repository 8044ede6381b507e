// SPDX-License-Identifier: Apache-2.0
// The forked task of a step: attaches to the job that job_prolog opened.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "client/hook_client.h"
#include "contexts.h"
#include "grant_file.h"
#include "option_values.h"
#include "slurm/grant.h"
#include "slurm/marked_env.h"

namespace plexrl::spank {
namespace {

constexpr Duration kPatience{30 * kSecond.ns};  // a restart of plexrld takes less
constexpr Duration kOneTry{5 * kSecond.ns};
constexpr Duration kPause{200 * kMillisecond.ns};
constexpr std::uint32_t kExternStep = 0xfffffffc;  // SLURM_EXTERN_CONT: no task of the user
constexpr std::uint32_t kBatchStep = 0xfffffffb;   // SLURM_BATCH_SCRIPT

std::string job_variable(spank_t spank, const char* name) {
  std::array<char, 4096> value{};
  if (spank_getenv(spank, name, value.data(), static_cast<int>(value.size())) != ESPANK_SUCCESS)
    return {};
  return value.data();
}

// What an outer job's environment left in a job that is not one of a pool.
void unset_marked(spank_t spank) {
  for (const std::string& name : slurm::marked_names(job_variable(spank, slurm::kMarker)))
    if (name != "SLURM_GRES" || job_variable(spank, "SLURM_GRES") == "none")
      spank_unsetenv(spank, name.c_str());
  spank_unsetenv(spank, slurm::kMarker);
}

// What an outer job has set and this one does not set goes.
Status set_variables(spank_t spank, const client::EnvPairs& pairs) {
  std::string marked;
  for (const std::string& name : slurm::marked_names(job_variable(spank, slurm::kMarker)))
    if (name == "SLURM_GRES")
      marked += name + ",";
    else
      spank_unsetenv(spank, name.c_str());
  for (const auto& [name, value] : pairs) {
    if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS)
      return error(Code::INTERNAL, "cannot set %s in the job's environment", name.c_str());
    marked += name + ",";
  }
  marked.pop_back();
  if (spank_setenv(spank, slurm::kMarker, marked.c_str(), 1) != ESPANK_SUCCESS)
    return error(Code::INTERNAL, "cannot set %s in the job's environment", slurm::kMarker);
  return {};
}

void pause() {
  const timespec time{0, kPause.ns};
  ::nanosleep(&time, nullptr);
}

bool worth_another_try(const Status& status) {
  return status.scope() == Scope::kRetry || status.code() == Code::NO_CAPACITY;
}

// The job of a task, and how to reach the service for it.
struct Target {
  const GrantFiles& files;
  const NotedJob& job;
  std::string socket;
};

Result<client::TaskEnvironment> attach_once(const Target& target, TimePoint deadline) {
  return client::attach_task(target.socket, target.job.job_id, target.job.uid, ::getpid(),
                             deadline);
}

// One attempt. Opens the job when plexrld does not know it: it was down during the prolog. One task
// at a time, because opening a job that has tasks begins a new incarnation.
Result<client::TaskEnvironment> try_attach(const Target& target, TimePoint deadline) {
  auto task = attach_once(target, deadline);
  if (task || task.error().code() != Code::NOT_FOUND) return task;
  PLEXRL_ASSIGN(const UniqueFd lock, target.files.lock(target.job.job_id));
  task = attach_once(target, deadline);
  if (task || task.error().code() != Code::NOT_FOUND) return task;
  const NotedJob& job = target.job;
  PLEXRL_TRY(client::open_job(target.socket, job.job_id, job.uid, job.gid, job.grant, deadline));
  return attach_once(target, deadline);
}

Result<client::TaskEnvironment> attach(const Target& target) {
  const TimePoint end = system_clock().now() + kPatience;
  while (true) {
    const TimePoint now = system_clock().now();
    auto task = try_attach(target, std::min(end, now + kOneTry));
    if (task || !worth_another_try(task.error())) return task;
    if (system_clock().now() + kPause >= end) return task.error().within("tried for 30 seconds");
    pause();
  }
}

Status join(spank_t spank, const GrantFiles& files, const NotedJob& job, const PluginArgs& args) {
  uid_t uid = 0;
  if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS || uid != job.uid)
    return error(Code::PERMISSION, "the prolog noted another user for this job");
  const auto grant = slurm::parse_grant(job.grant);
  if (!grant)
    return error(Code::PERMISSION,
                 "the job has --plexrl-pool but no grant: job_submit/plexrl did not run on the "
                 "controller; ask your administrator");
  PLEXRL_ASSIGN(std::string socket, socket_path(args));
  PLEXRL_ASSIGN(const client::TaskEnvironment task, attach({files, job, std::move(socket)}));
  PLEXRL_ASSIGN(const auto pairs, client::variables_of(task, grant->env));
  return set_variables(spank, pairs);
}

// Whether a job without a note should have one. A batch step has the option from its job alone; any
// other step may have brought it, so there the job's partition decides. Both can be forged by the
// job's user, who then ends nothing but this step.
bool lacks_note(spank_t spank, std::uint32_t step_id, const Result<PluginArgs>& args) {
  if (!option_value(slurm::Option::kPool)) return false;
  if (step_id == kBatchStep) return true;
  const auto site = args ? read_site(*args) : Result<config::SiteConfig>(args.error());
  return site && site->pool_of_partition(job_variable(spank, "SLURM_JOB_PARTITION")) != nullptr;
}

Status no_note() {
  return error(
      Code::UNAVAILABLE,
      "it has --plexrl-pool, but the prolog left no note of it on this node: is the file system "
      "of /run full? ask your administrator");
}

// Under `optional` a negative return lets the job run, so the process ends here. The job fails
// with this message in its own stderr, the node is not drained.
[[noreturn]] void refuse(std::uint32_t job_id, const Status& status) {
  slurm_error("plexrl: job %u cannot use its pool: %s", job_id, status.text().c_str());
  ::_exit(1);
}

}  // namespace

void task_init_privileged(spank_t spank, const Result<PluginArgs>& args) {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS || step_id == kExternStep)
    return;
  const std::string directory = args ? args->jobs_dir : PluginArgs().jobs_dir;
  const auto files = GrantFiles::open_existing(directory);
  const Result<NotedJob> job = files ? files->read(job_id) : files.error();
  if (!job && job.error().code() == Code::NOT_FOUND) {
    if (lacks_note(spank, step_id, args)) refuse(job_id, no_note());
    return unset_marked(spank);
  }
  if (!job) refuse(job_id, job.error());
  if (!args) refuse(job_id, args.error());
  if (const Status status = join(spank, *files, *job, *args); !status.ok()) refuse(job_id, status);
}

}  // namespace plexrl::spank
