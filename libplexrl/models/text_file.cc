// SPDX-License-Identifier: Apache-2.0
#include "models/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace plexrl::model {

Result<std::string> read_text(const std::string& path, std::uint64_t most) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "open '%s'",
                       path.c_str());
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno_error(Code::IO, errno, "stat '%s'", path.c_str());
  if (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) > most)
    return error(Code::TOO_LARGE, "'%s': not a regular file of at most %llu bytes", path.c_str(),
                 static_cast<unsigned long long>(most));
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return errno_error(Code::IO, got < 0 ? errno : EIO, "read '%s'", path.c_str());
    at += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace plexrl::model
