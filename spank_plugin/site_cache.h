// SPDX-License-Identifier: Apache-2.0
// SiteCache: the site file as values, read again when it changed. A look costs one stat(2). When a
// changed file is wrong, the last good one stays in use and the mistake is logged once. A wrong
// file is also read again every few seconds: what mends it may be the mode of a folder above it,
// which the file's own stat does not show. One thread; slurmctld calls job_submit plugins under a
// lock of its own.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "base/clock.h"
#include "config/site_config.h"

namespace plexrl::job_submit {

class SiteCache {
 public:
  explicit SiteCache(std::string path) : path_(std::move(path)) {}

  // Null when no good file was ever read; problem() says why. Valid until the next call.
  [[nodiscard]] const config::SiteConfig* look(TimePoint now);
  [[nodiscard]] const Status& problem() const { return problem_; }
  // True once for each new problem.
  [[nodiscard]] bool take_news();

 private:
  [[nodiscard]] bool changed();
  void read(TimePoint now);

  std::string path_;
  std::optional<config::SiteConfig> site_;
  Status problem_;
  bool news_ = false;
  bool known_ = false;  // stat_ is set
  struct stat stat_ {};
  TimePoint retry_at_;
};

}  // namespace plexrl::job_submit
