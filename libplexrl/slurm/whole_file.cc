// SPDX-License-Identifier: Apache-2.0
#include "slurm/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/unique_fd.h"

namespace plexrl::slurm {
namespace {

// One byte more than allowed is enough to see that there is too much.
Result<std::string> read_all(int file, const std::string& path, std::size_t max_bytes) {
  std::string text(max_bytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(Code::IO, errno, "read '%s'", path.c_str());
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > max_bytes)
    return error(Code::TOO_LARGE, "'%s': larger than %zu bytes", path.c_str(), max_bytes);
  text.resize(size);
  return text;
}

Status write_all(int file, const std::string& text, const std::string& path, mode_t mode) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t put = ::write(file, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno_error(Code::IO, errno, "write '%s'", path.c_str());
    done += static_cast<std::size_t>(put);
  }
  if (::fchmod(file, mode) != 0 || ::fsync(file) != 0)
    return errno_error(Code::IO, errno, "write '%s'", path.c_str());
  return {};
}

Status sync_directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd directory(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0)
    return errno_error(Code::IO, errno, "sync '%s'", name.c_str());
  return {};
}

}  // namespace

Result<std::string> read_whole_file(const std::string& path, std::size_t max_bytes) {
  // Not to wait for the writer of a pipe.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "open '%s'",
                       path.c_str());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return errno_error(Code::IO, errno, "examine '%s'", path.c_str());
  if (!S_ISREG(info.st_mode))
    return error(Code::PERMISSION, "'%s' is no plain file: remove it", path.c_str());
  return read_all(file.get(), path, max_bytes);
}

Status replace_file(const std::string& path, const std::string& text, mode_t mode) {
  const std::string temporary = path + ".new";
  (void)::unlink(temporary.c_str());
  {
    const UniqueFd file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return errno_error(Code::IO, errno, "create '%s'", temporary.c_str());
    PLEXRL_TRY(write_all(file.get(), text, temporary, mode));
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return errno_error(Code::IO, errno, "rename to '%s'", path.c_str());
  return sync_directory_of(path);
}

}  // namespace plexrl::slurm
