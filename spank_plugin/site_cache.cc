// SPDX-License-Identifier: Apache-2.0
#include "site_cache.h"

#include <utility>

namespace plexrl::job_submit {
namespace {

constexpr Duration kRetry{5 * kSecond.ns};

}  // namespace

void SiteCache::read(TimePoint now) {
  ++reads_;
  const std::string before = problem_.text();
  auto site = config::load_site_config(path_, true);
  problem_ = site.error();
  if (site) {
    site_ = std::move(*site);
    problem_ = known_pools_.remember(*site_).within("the pools cannot be remembered");
  } else if (!site_) {
    recall();
  }
  news_ = !problem_.ok() && (news_ || problem_.text() != before);
  retry_at_ = now + kRetry;
}

// Once; what came of it belongs to each report of the problem.
void SiteCache::recall() {
  if (recalled_.empty()) {
    auto pools = known_pools_.recall();
    if (pools) pools_ = std::move(*pools);
    recalled_ = !pools ? pools.error().text()
                       : std::to_string(pools_.pools.size()) + " pools are known of old";
  }
  problem_ = error(problem_.code(), "%s (%s)", problem_.text().c_str(), recalled_.c_str());
}

const config::SiteConfig* SiteCache::look(TimePoint now) {
  if (stamp_.changed(path_) || (!problem_.ok() && now >= retry_at_)) read(now);
  return site_ ? &*site_ : nullptr;
}

bool SiteCache::take_news() { return std::exchange(news_, false); }

}  // namespace plexrl::job_submit
