// SPDX-License-Identifier: Apache-2.0
#include "hook.h"

#include <cstdlib>
#include <memory>

#include "guard.h"
#include "job_description.h"
#include "node_features.h"
#include "profile_cache.h"
#include "site_cache.h"
#include "slurm/controller_report.h"
#include "slurm/profile_file.h"
#include "submitters.h"

namespace plexrl::job_submit {
namespace {

// Shared by the controllers of a cluster; empty where slurmctld does not say.
std::string state_dir() {
  if (&slurm_conf == nullptr || slurm_conf.state_save_location == nullptr) return {};
  return slurm_conf.state_save_location;
}

std::string pools_path() {
  const std::string directory = state_dir();
  return directory.empty() ? directory : directory + "/plexrl_pools";
}

SiteCache& site_cache() {
  static SiteCache cache(config::default_config_path(), pools_path());
  return cache;
}

Submitters& submitters() {
  static Submitters known;
  return known;
}

ProfileCache& profile_cache() {
  static ProfileCache cache(slurm::profiles_path(config::default_config_path()));
  return cache;
}

slurm::FileSeen seen(const std::string& path, const std::string& problem) {
  auto hash = slurm::file_hash(path);
  return {hash ? std::move(*hash) : std::string(), problem};
}

// For `plexrl config check --controller`, when either file was read.
void report_files() {
  static std::uint64_t reported = 0;
  const std::uint64_t reads = site_cache().reads() + profile_cache().reads();
  const std::string directory = state_dir();
  if (reads == reported || directory.empty()) return;
  reported = reads;
  const slurm::ControllerReport report{slurm::controller_host(),
                                       seen(site_cache().path(), site_cache().problem().text()),
                                       seen(profile_cache().path(), profile_cache().trouble())};
  if (const Status status = slurm::write_report(directory, report); !status.ok())
    slurm_error("plexrl: what was read cannot be noted: %s", status.text().c_str());
}

// Both files, as a change of either is reported with the other.
const config::SiteConfig* look_at_files(TimePoint now) {
  const config::SiteConfig* site = site_cache().look(now);
  if (site_cache().take_news())
    slurm_error("plexrl: site file: %s", site_cache().problem().text().c_str());
  (void)profile_cache().look(now);
  if (const std::string news = profile_cache().take_news(); !news.empty())
    slurm_error("plexrl: profiles: %s", news.c_str());
  report_files();
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
  const TimePoint now = system_clock().now();
  const config::SiteConfig* site = look_at_files(now);
  if (site == nullptr && concerns_plexrl(request))
    return error(Code::UNAVAILABLE,
                 "the site's plexrl.yaml cannot be read; ask your administrator");
  // An ordinary job; a pool's partition is refused as long as it is known which those are.
  if (site == nullptr) return slurm::rewrite(request, site_cache().pools(), {});
  // The name service may be slow, and slurmctld waits: it is not asked for other jobs.
  if (!request.option(slurm::Option::kPool)) return slurm::rewrite(request, *site, {});
  PLEXRL_TRY(check_prolog_flags(request.has_script));
  return slurm::rewrite(request, *site, submitters().get(uid, now), profile_cache().profiles());
}

Answer decide_submission(job_desc_msg_t* description, std::uint32_t submit_uid) {
  const slurm::JobRequest request = read_request(*description);
  // root may submit for another user.
  const std::uint32_t uid = description->user_id == NO_VAL ? submit_uid : description->user_id;
  auto rewrite = decide(request, uid);
  if (!rewrite) return refuse(rewrite.error(), uid);
  // Slurm refuses a job whose preference no node can fulfil now; later it just does without.
  if (!rewrite->prefer.empty() && !is_active_feature(rewrite->prefer)) rewrite->prefer.clear();
  if (rewrite->grant || rewrite->environment.size() != request.environment.size())
    apply(*rewrite, description);
  return {SLURM_SUCCESS, rewrite->note.empty() ? "" : "plexrl: " + rewrite->note};
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
  const config::SiteConfig* site = look_at_files(system_clock().now());
  const Status status = slurm::check_modify(read_modify(*description), pool_of(record),
                                            site != nullptr ? *site : site_cache().pools());
  return status.ok() ? Answer{} : refuse(status, uid);
}

}  // namespace

void begin() noexcept {
  (void)guarded("begin", SLURM_ERROR, [] {
    (void)look_at_files(system_clock().now());
    return SLURM_SUCCESS;
  });
}

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
