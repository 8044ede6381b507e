// SPDX-License-Identifier: Apache-2.0
// KnownPools: which partitions are pools', as the last good site file said, in slurmctld's state
// directory. Without it a slurmctld that starts beside a broken site file could not tell a pool's
// partition from any other. It only ever makes the plugin refuse more.
#pragma once

#include <string>

#include "config/site_config.h"

namespace plexrl::job_submit {

class KnownPools {
 public:
  // An empty path remembers nothing.
  explicit KnownPools(std::string path) : path_(std::move(path)) {}
  // Writes the file when it would differ from what was written or read last.
  [[nodiscard]] Status remember(const config::SiteConfig& site);
  // A configuration that has the names and partitions of the pools and nothing else; without pools
  // when there is no file. CORRUPT, IO.
  [[nodiscard]] Result<config::SiteConfig> recall();

 private:
  std::string path_;
  std::string written_;
};

}  // namespace plexrl::job_submit
