// SPDX-License-Identifier: Apache-2.0
// PartialDirectory: a directory that appears under its name when it is whole. Until then it is
// NAME.partial, which outlives this object and a crash, so that what is in it can be used again.
// One user at a time, by a lock. Any thread; blocks.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "models/checksums.h"

namespace plexrl::model {

inline constexpr std::string_view kPartialSuffix = ".partial";

class PartialDirectory {
 public:
  // Makes it, or takes what an earlier run left. EXISTS: NAME is there; NOT_FOUND: its parent is
  // not; BUSY: somebody else is at it; PERMISSION: it is another user's.
  [[nodiscard]] static Result<PartialDirectory> open(const std::string& name);
  // Removes what an earlier run left, but for these files. IO.
  [[nodiscard]] Status keep_only(const std::set<std::string>& files) const;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string file(std::string_view name) const {
    return path_ + "/" + std::string(name);
  }
  // Writes SHA256SUMS of the files that are there. CANCELLED by `progress`; IO.
  [[nodiscard]] Status write_checksums(const ByteProgress& progress) const;
  // On disk first, then under its name, and the name on disk. The files must be synced. EXISTS, IO.
  [[nodiscard]] Status publish();
  void remove();  // with all that is in it

 private:
  PartialDirectory(std::string name, UniqueFd fd)
      : name_(std::move(name)), path_(name_ + std::string(kPartialSuffix)), fd_(std::move(fd)) {}
  std::string name_;
  std::string path_;
  UniqueFd fd_;  // holds the lock
};

}  // namespace plexrl::model
