// SPDX-License-Identifier: Apache-2.0
#include "profile_cache.h"

#include <utility>

#include "slurm/profile_file.h"

namespace plexrl::job_submit {
namespace {

constexpr Duration kRetry{5 * kSecond.ns};

}  // namespace

void ProfileCache::read(TimePoint now) {
  ++reads_;
  auto parsed = slurm::load_profiles(path_);
  const bool missing = !parsed && parsed.error().code() == Code::NOT_FOUND;
  std::string trouble;
  if (missing) {
    profiles_.clear();
  } else if (!parsed) {
    trouble = parsed.error().text();
  } else {
    trouble = slurm::ignored_lines_text(path_, *parsed);
    profiles_ = std::move(parsed->profiles);
  }
  retry_ = !missing && !parsed;
  retry_at_ = now + kRetry;
  news_ = !trouble.empty() && (news_ || trouble != trouble_);
  trouble_ = std::move(trouble);
}

const slurm::Profiles& ProfileCache::look(TimePoint now) {
  if (stamp_.changed(path_) || (retry_ && now >= retry_at_)) read(now);
  return profiles_;
}

std::string ProfileCache::take_news() {
  return std::exchange(news_, false) ? trouble_ : std::string();
}

}  // namespace plexrl::job_submit
