// SPDX-License-Identifier: Apache-2.0
#include "hook.h"

#include <cstdlib>
#include <memory>

#include "guard.h"
#include "job_description.h"
#include "site_cache.h"
#include "submitters.h"

namespace plexrl::job_submit {
namespace {

// Shared by the controllers of a cluster; empty where slurmctld does not say.
std::string pools_path() {
  if (&slurm_conf == nullptr || slurm_conf.state_save_location == nullptr) return {};
  return std::string(slurm_conf.state_save_location) + "/plexrl_pools";
}

SiteCache& site_cache() {
  static SiteCache cache(config::default_config_path(), pools_path());
  return cache;
}

Submitters& submitters() {
  static Submitters known;
  return known;
}

const config::SiteConfig* look_at_site() {
  const config::SiteConfig* site = site_cache().look(system_clock().now());
  if (site_cache().take_news())
    slurm_error("plexrl: site file: %s", site_cache().problem().text().c_str());
  return site;
}

Answer refuse(const Status& status, std::uint32_t uid) {
  slurm_info("plexrl: refused uid %u: %s", uid, status.text().c_str());
  return {ESLURM_ACCESS_DENIED, "plexrl: " + status.text()};
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
  if (site == nullptr && concerns_plexrl(request))
    return error(Code::UNAVAILABLE,
                 "the site's plexrl.yaml cannot be read; ask your administrator");
  // An ordinary job; a pool's partition is refused as long as it is known which those are.
  if (site == nullptr) return slurm::rewrite(request, site_cache().pools(), {});
  // The name service may be slow, and slurmctld waits: it is not asked for other jobs.
  if (!request.option(slurm::Option::kPool)) return slurm::rewrite(request, *site, {});
  PLEXRL_TRY(check_prolog_flags(request.has_script));
  return slurm::rewrite(request, *site, submitters().get(uid, system_clock().now()));
}

Answer decide_submission(job_desc_msg_t* description, std::uint32_t submit_uid) {
  const slurm::JobRequest request = read_request(*description);
  // root may submit for another user.
  const std::uint32_t uid = description->user_id == NO_VAL ? submit_uid : description->user_id;
  const auto rewrite = decide(request, uid);
  if (!rewrite) return refuse(rewrite.error(), uid);
  if (rewrite->grant || rewrite->environment.size() != request.environment.size())
    apply(*rewrite, description);
  return {};
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

Answer decide_change(job_desc_msg_t* description, job_record* record, std::uint32_t uid) {
  if (is_privileged(uid)) return {};
  const config::SiteConfig* site = look_at_site();
  const Status status = slurm::check_modify(read_modify(*description), pool_of(record),
                                            site != nullptr ? *site : site_cache().pools());
  return status.ok() ? Answer{} : refuse(status, uid);
}

}  // namespace

Answer submit(job_desc_msg_t* description, std::uint32_t submit_uid) noexcept {
  Answer answer;
  answer.code = guarded("job_submit", SLURM_ERROR, [&] {
    answer = decide_submission(description, submit_uid);
    return answer.code;
  });
  return answer;
}

Answer modify(job_desc_msg_t* description, job_record* record, std::uint32_t uid) noexcept {
  Answer answer;
  answer.code = guarded("job_modify", SLURM_ERROR, [&] {
    answer = decide_change(description, record, uid);
    return answer.code;
  });
  return answer;
}

}  // namespace plexrl::job_submit
