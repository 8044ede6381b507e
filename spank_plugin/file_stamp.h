// SPDX-License-Identifier: Apache-2.0
// FileStamp: whether a file is still the one that was read. A look costs one stat(2).
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

namespace plexrl::job_submit {

class FileStamp {
 public:
  // True the first time and whenever the file has changed since; a file that is missing is one more
  // state.
  [[nodiscard]] bool changed(const std::string& path) {
    struct stat now {};
    // A missing file leaves zeros, which differ from those of any file.
    if (::stat(path.c_str(), &now) != 0) now = {};
    const bool is_new = !last_ || !same(now, *last_);
    last_ = now;
    return is_new;
  }

 private:
  static bool same(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
           a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec &&
           a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
  }

  std::optional<struct stat> last_;
};

}  // namespace plexrl::job_submit
