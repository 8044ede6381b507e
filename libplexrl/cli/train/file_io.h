// SPDX-License-Identifier: Apache-2.0
// Small files written whole: old or new content after a crash, never a mixture. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::cli {

// Temporary file beside `path`, fsync, rename, fsync of the directory. IO names the step.
[[nodiscard]] Status write_atomically(const std::string& path, std::string_view text);
// NOT_FOUND when there is none, TOO_LARGE above `limit` bytes.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t limit);
// IO when no file could be made beside `path`: better known before hours of work than after.
[[nodiscard]] Status can_create(const std::string& path);
[[nodiscard]] bool file_exists(const std::string& path);

// A bulk file that somebody else fills through its fd: created as PATH.tmp, named PATH by
// publish().
class PendingFile {
 public:
  [[nodiscard]] static Result<PendingFile> create(const std::string& path);
  PendingFile(PendingFile&& other) noexcept
      : path_(std::exchange(other.path_, {})), fd_(std::move(other.fd_)) {}
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile();  // removes what was not published

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] Status publish();

 private:
  PendingFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace plexrl::cli
