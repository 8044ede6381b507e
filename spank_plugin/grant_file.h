// SPDX-License-Identifier: Apache-2.0
// GrantFiles: what job_prolog noted about the jobs of this node, one file per job of a pool, in a
// directory that only root can enter. A step's hooks believe this and nothing that the step brings.
// Any process; a file is replaced as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::spank {

struct NotedJob {
  std::uint32_t job_id = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::string grant;  // text of the option in the job's record; a grant when the site's hook ran
};

class GrantFiles {
 public:
  // The directory is made when it is missing. PERMISSION when it is not root's alone.
  [[nodiscard]] static Result<GrantFiles> open(const std::string& directory);
  // NOT_FOUND when the directory does not exist.
  [[nodiscard]] static Result<GrantFiles> open_existing(const std::string& directory);

  // After a failure read() gives CORRUPT rather than NOT_FOUND, when anything can be left at all.
  [[nodiscard]] Status note(const NotedJob& job) const;
  // NOT_FOUND: no job of a pool. CORRUPT: not what note() writes.
  [[nodiscard]] Result<NotedJob> read(std::uint32_t job_id) const;
  // Exclusive right to open the job, held until the descriptor is closed. BUSY: another task has
  // it.
  [[nodiscard]] Result<UniqueFd> lock(std::uint32_t job_id) const;
  // All notes that can be read, in no order.
  [[nodiscard]] std::vector<NotedJob> all() const;
  // Held until the descriptor is closed. BUSY: somebody had it up to the deadline.
  [[nodiscard]] Result<UniqueFd> lock_all(TimePoint deadline) const;
  // No error when there is none.
  [[nodiscard]] Status forget(std::uint32_t job_id) const;

 private:
  explicit GrantFiles(UniqueFd directory) : directory_(std::move(directory)) {}
  UniqueFd directory_;
};

}  // namespace plexrl::spank
