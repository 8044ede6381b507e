// SPDX-License-Identifier: Apache-2.0
// SiteCache: the site file as values, read again when it changed. A look costs one stat(2). When a
// changed file is wrong, the last good one stays in use and the mistake is logged once. A wrong
// file is also read again every few seconds: what mends it may be the mode of a folder above it,
// which the file's own stat does not show. While there has been no good file, pools() says which
// partitions were pools' the last time there was one. One thread; slurmctld calls job_submit
// plugins under a lock of its own.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "config/site_config.h"
#include "file_stamp.h"
#include "known_pools.h"

namespace plexrl::job_submit {

class SiteCache {
 public:
  // `pools_path`: file of KnownPools.
  explicit SiteCache(std::string path, std::string pools_path = {})
      : path_(std::move(path)), known_pools_(std::move(pools_path)) {}

  // Null when no good file was ever read; problem() says why. Valid until the next call.
  [[nodiscard]] const config::SiteConfig* look(TimePoint now);
  [[nodiscard]] const Status& problem() const { return problem_; }
  // After a look() that returned null: names and partitions of the pools that are known of old.
  [[nodiscard]] const config::SiteConfig& pools() const { return pools_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t reads() const { return reads_; }
  // True once for each new problem.
  [[nodiscard]] bool take_news();

 private:
  void read(TimePoint now);
  void recall();

  std::string path_;
  KnownPools known_pools_;
  std::optional<config::SiteConfig> site_;
  config::SiteConfig pools_;
  std::string recalled_;  // what recalling the pools came to; empty: not tried
  Status problem_;
  bool news_ = false;
  std::uint64_t reads_ = 0;
  FileStamp stamp_;
  TimePoint retry_at_;
};

}  // namespace plexrl::job_submit
