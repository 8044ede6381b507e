// SPDX-License-Identifier: Apache-2.0
// ProfileCache: what earlier runs of jobs tell, from the file of `plexrl profiles export`, read
// again when it changed. A look costs one stat(2). No file: no profiles. Of a file that cannot be
// trusted or read nothing is taken, and the last good one stays in use; lines that are none are
// left out. Either is told once. One thread.
#pragma once

#include <string>

#include "base/clock.h"
#include "file_stamp.h"
#include "slurm/profile.h"

namespace plexrl::job_submit {

class ProfileCache {
 public:
  explicit ProfileCache(std::string path) : path_(std::move(path)) {}

  // Valid until the next call.
  [[nodiscard]] const slurm::Profiles& look(TimePoint now);
  [[nodiscard]] const slurm::Profiles& profiles() const { return profiles_; }
  // What is new and wrong, for the log; empty: nothing.
  [[nodiscard]] std::string take_news();
  // What is wrong now; empty: nothing.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t reads() const { return reads_; }

 private:
  void read(TimePoint now);

  std::string path_;
  slurm::Profiles profiles_;
  FileStamp stamp_;
  std::string trouble_;
  bool news_ = false;
  std::uint64_t reads_ = 0;
  bool retry_ = false;  // the file was not taken; a mode above it may be mended
  TimePoint retry_at_;
};

}  // namespace plexrl::job_submit
