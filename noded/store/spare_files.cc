// SPDX-License-Identifier: Apache-2.0
#include "store/spare_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "store/blob_format.h"
#include "store/io_queue.h"

namespace plexrl::store {

Status SpareFiles::open(int directory, bool direct, std::vector<std::string> found) {
  directory_ = directory;
  direct_ = direct;
  names_ = std::move(found);
  Status status = make();
  if (!status.ok()) names_.clear();
  return status;
}

Result<SpareFiles::File> SpareFiles::take() {
  const int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC | (direct_ ? O_DIRECT : 0);
  for (bool fresh = false;;) {
    if (names_.empty()) {
      PLEXRL_TRY(make());
      fresh = true;
    }
    UniqueFd fd(::openat(directory_, names_.back().c_str(), flags));
    if (fd) {
      File file{std::move(names_.back()), std::move(fd)};
      names_.pop_back();
      return file;
    }
    // Somebody removed them.
    if (errno != ENOENT || fresh) return disk_error(errno, "create");
    names_.clear();
  }
}

void SpareFiles::refill() {
  if (names_.size() >= kSpareFiles / 2) return;
  const Status status = make();
  if (!status.ok())
    PLEXRL_LOG(kWarning, "disk tier: files for the next blobs: %s", status.to_string().c_str());
}

// Syncs even when none is missing: names that were given since the last sync are durable then.
Status SpareFiles::make() {
  std::vector<std::string> made;
  while (names_.size() + made.size() < kSpareFiles) {
    std::string name = spare_file_name(++last_);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const UniqueFd file(::openat(directory_, name.c_str(), flags, 0600));
    if (!file && errno == EEXIST) continue;
    if (!file && names_.empty() && made.empty()) return disk_error(errno, "create");
    if (!file) break;  // fewer do, too
    made.push_back(std::move(name));
  }
  if (::fsync(directory_) != 0) {
    Status status = disk_error(errno, "sync the directory");
    for (const std::string& name : made) ::unlinkat(directory_, name.c_str(), 0);
    return status;
  }
  names_.insert(names_.end(), made.begin(), made.end());
  return {};
}

}  // namespace plexrl::store
