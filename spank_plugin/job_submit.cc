// SPDX-License-Identifier: Apache-2.0
// job_submit_plexrl.so: what slurmctld calls for each submission and each change of a job, under
// its own locks. No I/O but one stat of the site file (read again when it changed) and, for pool
// jobs, the user's groups once a minute. Nothing may throw: it would end slurmctld.
#include <cstdlib>
#include <memory>

#include "guard.h"
#include "job_description.h"
#include "site_cache.h"
#include "submitters.h"

extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const std::uint32_t plugin_version;
const char plugin_name[] = "PlexRL job_submit plugin";
const char plugin_type[] = "job_submit/plexrl";
const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;  // must equal slurmctld's, micro too
}

using namespace plexrl;  // NOLINT: entry points only

namespace {

// Shared by the controllers of a cluster; empty where slurmctld does not say.
std::string pools_path() {
  if (&slurm_conf == nullptr || slurm_conf.state_save_location == nullptr) return {};
  return std::string(slurm_conf.state_save_location) + "/plexrl_pools";
}

job_submit::SiteCache& site_cache() {
  static job_submit::SiteCache cache(config::default_config_path(), pools_path());
  return cache;
}

job_submit::Submitters& submitters() {
  static job_submit::Submitters known;
  return known;
}

const config::SiteConfig* look_at_site() {
  const config::SiteConfig* site = site_cache().look(system_clock().now());
  if (site_cache().take_news())
    slurm_error("plexrl: site file: %s", site_cache().problem().text().c_str());
  return site;
}

int refuse(const Status& status, std::uint32_t uid, char** err_msg) {
  slurm_info("plexrl: refused uid %u: %s", uid, status.text().c_str());
  if (err_msg != nullptr) {
    slurm_xfree(reinterpret_cast<void**>(err_msg));
    *err_msg = slurm_xstrdup(("plexrl: " + status.text()).c_str());
  }
  return ESLURM_ACCESS_DENIED;
}

// Without the flag the prolog of srun and salloc would see the client's text instead of the grant.
Status check_prolog_flags(bool has_script) {
  if (has_script || &slurm_conf == nullptr || (slurm_conf.prolog_flags & PROLOG_FLAG_ALLOC) != 0)
    return {};
  return error(
      Code::UNSUPPORTED,
      "srun and salloc cannot use a pool here: write the job as a batch script, or ask your "
      "administrator to set PrologFlags=Alloc");
}

Result<slurm::Rewrite> decide(const slurm::JobRequest& request, std::uint32_t uid) {
  const config::SiteConfig* site = look_at_site();
  if (site == nullptr && job_submit::concerns_plexrl(request))
    return error(Code::UNAVAILABLE,
                 "the site's plexrl.yaml cannot be read; ask your administrator");
  // An ordinary job; a pool's partition is refused as long as it is known which those are.
  if (site == nullptr) return slurm::rewrite(request, site_cache().pools(), {});
  // The name service may be slow, and slurmctld waits: it is not asked for other jobs.
  if (!request.option(slurm::Option::kPool)) return slurm::rewrite(request, *site, {});
  PLEXRL_TRY(check_prolog_flags(request.has_script));
  return slurm::rewrite(request, *site, submitters().get(uid, system_clock().now()));
}

int submit(job_desc_msg_t* description, std::uint32_t submit_uid, char** err_msg) {
  const slurm::JobRequest request = job_submit::read_request(*description);
  // root may submit for another user.
  const std::uint32_t uid = description->user_id == NO_VAL ? submit_uid : description->user_id;
  const auto rewrite = decide(request, uid);
  if (!rewrite) return refuse(rewrite.error(), uid, err_msg);
  if (rewrite->grant || rewrite->environment.size() != request.environment.size())
    job_submit::apply(*rewrite, description);
  return SLURM_SUCCESS;
}

// slurmctld reads the environment of a job into one block, which the first entry points to; its own
// function would free each entry.
void free_environment(job_desc_msg_t& description) {
  if (description.environment == nullptr || description.env_size == 0) return;
  slurm_xfree(reinterpret_cast<void**>(&description.environment[0]));
  slurm_xfree(reinterpret_cast<void**>(&description.environment));
  description.env_size = 0;
}

struct FreeDescription {
  void operator()(job_desc_msg_t* description) const {
    free_environment(*description);
    slurm_free_job_desc_msg(description);
  }
};

// slurmctld's own copy of a job in the form of a submission; reads the job's script and environment
// from the state directory, which users' changes of jobs are rare enough for.
std::string pool_of(job_record* record) {
  // How the copy must be freed was tested with 22.05 only; a wrong free would end slurmctld.
  constexpr bool kTested = SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 2, 0);
  if (!kTested || copy_job_record_to_job_desc == nullptr || slurm_free_job_desc_msg == nullptr)
    return {};
  const std::unique_ptr<job_desc_msg_t, FreeDescription> job(copy_job_record_to_job_desc(record));
  return job ? job_submit::pool_of(*job) : std::string();
}

bool is_privileged(std::uint32_t uid) {
  return uid == 0 || (&slurm_conf != nullptr && uid == slurm_conf.slurm_user_id);
}

int modify(job_desc_msg_t* description, job_record* record, std::uint32_t uid) {
  if (is_privileged(uid)) return SLURM_SUCCESS;
  const config::SiteConfig* site = look_at_site();
  const Status status = slurm::check_modify(job_submit::read_modify(*description), pool_of(record),
                                            site != nullptr ? *site : site_cache().pools());
  return status.ok() ? SLURM_SUCCESS : refuse(status, uid, nullptr);
}

}  // namespace

extern "C" {

int job_submit(job_desc_msg_t* description, std::uint32_t submit_uid, char** err_msg) {
  return guarded("job_submit", SLURM_ERROR,
                 [&] { return submit(description, submit_uid, err_msg); });
}

// Later releases pass a fourth argument for a text to the user. Which is the first is not tested,
// and ignoring it is safe where it exists; the reason is in slurmctld's log.
int job_modify(job_desc_msg_t* description, job_record* record, std::uint32_t uid) {
  return guarded("job_modify", SLURM_ERROR, [&] { return modify(description, record, uid); });
}

}  // extern "C"
