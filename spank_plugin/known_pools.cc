// SPDX-License-Identifier: Apache-2.0
#include "known_pools.h"

#include <sstream>

#include "slurm/whole_file.h"

namespace plexrl::job_submit {
namespace {

constexpr std::size_t kMaxFile = 1U << 20;

}  // namespace

Status KnownPools::remember(const config::SiteConfig& site) {
  std::string text;
  for (const config::PoolEntry& pool : site.pools) text += pool.partition + " " + pool.name + "\n";
  if (path_.empty() || text == written_) return {};
  PLEXRL_TRY(slurm::replace_file(path_, text, 0600));
  written_ = text;
  return {};
}

Result<config::SiteConfig> KnownPools::recall() {
  config::SiteConfig site;
  if (path_.empty()) return site;
  auto text = slurm::read_whole_file(path_, kMaxFile);
  if (!text && text.error().code() == Code::NOT_FOUND) return site;
  PLEXRL_ASSIGN(written_, std::move(text));
  std::istringstream lines(written_);
  for (std::string line; std::getline(lines, line);) {
    config::PoolEntry pool;
    std::istringstream words(line);
    if (!(words >> pool.partition >> pool.name))
      return error(Code::CORRUPT, "'%s': not lines of a partition and a pool", path_.c_str());
    site.pools.push_back(std::move(pool));
  }
  return site;
}

}  // namespace plexrl::job_submit
