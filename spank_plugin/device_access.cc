// SPDX-License-Identifier: Apache-2.0
#include "device_access.h"

#include <algorithm>

#include "config/device_files.h"
#include "device_acl.h"
#include "slurm/grant.h"

namespace plexrl::spank {
namespace {

// All files are tried; the first failure is told.
template <class Change>
Status for_each_file(const std::string& pattern, Change change) {
  Status first;
  for (const std::string& path : config::find_device_files(pattern))
    if (Status status = change(path); !status.ok() && first.ok()) first = std::move(status);
  return first;
}

}  // namespace

bool is_lease_job(const NotedJob& job) {
  const auto grant = slurm::parse_grant(job.grant);
  return grant && grant->train_mode == "none";
}

Status open_devices(const GrantFiles& files, const NotedJob& job, const std::string& pattern,
                    TimePoint deadline) {
  if (pattern.empty() || !is_lease_job(job)) return {};
  PLEXRL_ASSIGN(const UniqueFd lock, files.lock_all(deadline));
  return for_each_file(pattern, [&](const std::string& path) { return let_in(path, job.uid); });
}

Status close_devices(const GrantFiles& files, const NotedJob& job, const std::string& pattern,
                     TimePoint deadline) {
  if (pattern.empty() || !is_lease_job(job)) return {};
  PLEXRL_ASSIGN(const UniqueFd lock, files.lock_all(deadline));
  const auto jobs = files.all();
  const bool another = std::any_of(jobs.begin(), jobs.end(), [&](const NotedJob& other) {
    return other.uid == job.uid && other.job_id != job.job_id && is_lease_job(other);
  });
  if (another) return {};
  return for_each_file(pattern, [&](const std::string& path) { return shut_out(path, job.uid); });
}

}  // namespace plexrl::spank
