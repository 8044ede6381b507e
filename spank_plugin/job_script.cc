// SPDX-License-Identifier: Apache-2.0
// Prolog and epilog of a job on this node. Never spank_job_control_getenv here: it crashes
// slurmstepd of 22.05.
#include "client/hook_client.h"
#include "contexts.h"
#include "device_access.h"
#include "grant_file.h"
#include "option_values.h"
#include "slurm/grant.h"

namespace plexrl::spank {
namespace {

// Of prolog and epilog each: jobs wait for them.
constexpr Duration kPatience{5 * kSecond.ns};

TimePoint deadline() { return system_clock().now() + kPatience; }

void report(std::uint32_t job_id, const char* what, const Status& status) {
  if (!status.ok()) slurm_error("plexrl: job %u: %s: %s", job_id, what, status.text().c_str());
}

Status open_now(const NotedJob& job, const PluginArgs& args) {
  // The text of a user, when the hook did not run; the first task then says so in the job's stderr.
  PLEXRL_TRY(slurm::parse_grant(job.grant).status());
  PLEXRL_ASSIGN(const std::string socket, socket_path(args));
  return client::open_job(socket, job.job_id, job.uid, job.gid, job.grant, deadline());
}

Status close_now(std::uint32_t job_id, const PluginArgs& args) {
  PLEXRL_ASSIGN(const std::string socket, socket_path(args));
  return client::close_job(socket, job_id, deadline());
}

bool is_text(const std::string& text) {
  return !text.empty() && text.size() <= 4096 && text.find('\n') == std::string::npos;
}

}  // namespace

void job_prolog(spank_t spank, const PluginArgs& args) {
  NotedJob job;
  uid_t uid = 0;
  gid_t gid = 0;
  if (spank_get_item(spank, S_JOB_ID, &job.job_id) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS)
    return slurm_error("plexrl: prolog: Slurm does not say which job this is");
  const std::optional<std::string> text = job_pool_text(spank);
  if (!text) {
    // Job ids start again with a new cluster; an old note must not make this a job of a pool.
    if (const auto files = GrantFiles::open_existing(args.jobs_dir); files)
      report(job.job_id, "prolog", files->forget(job.job_id));
    return;
  }
  job.uid = uid;
  job.gid = gid;
  job.grant = is_text(*text) ? *text : "?";
  const auto files = GrantFiles::open(args.jobs_dir);
  const Status noted = files ? files->note(job) : files.error();
  report(job.job_id, "prolog", noted);
  if (noted.ok())
    report(job.job_id, "prolog: device files",
           open_devices(*files, job, args.device_files, deadline()));
  report(job.job_id, "prolog: the job is not open yet, its tasks will try again",
         open_now(job, args));
}

void job_epilog(spank_t spank, const PluginArgs& args) {
  std::uint32_t job_id = 0;
  if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS)
    return slurm_error("plexrl: epilog: Slurm does not say which job this is");
  const auto files = GrantFiles::open_existing(args.jobs_dir);
  if (!files) return;
  const auto job = files->read(job_id);
  if (!job) return;
  report(job_id, "epilog: plexrld will find out by itself", close_now(job_id, args));
  report(job_id, "epilog", files->forget(job_id));
  report(job_id, "epilog: device files",
         close_devices(*files, *job, args.device_files, deadline()));
}

}  // namespace plexrl::spank
