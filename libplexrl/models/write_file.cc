// SPDX-License-Identifier: Apache-2.0
#include "models/write_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace plexrl::model {

Status write_at(int fd, const void* from, std::uint64_t bytes, std::uint64_t offset,
                const std::string& what) {
  const auto* at = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const ssize_t put =
        ::pwrite(fd, at, std::min<std::uint64_t>(bytes, 1U << 30), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && (errno == ENOSPC || errno == EDQUOT))
      return errno_error(Code::IO, errno, "%s: make room and run it again: write", what.c_str());
    if (put <= 0) return errno_error(Code::IO, put < 0 ? errno : EIO, "%s: write", what.c_str());
    at += put;
    bytes -= static_cast<std::uint64_t>(put);
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

Result<UniqueFd> create_file(const std::string& path, int more) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | more, 0644));
  if (fd) return fd;
  return errno_error(errno == EEXIST ? Code::EXISTS : Code::IO, errno, "create '%s'", path.c_str());
}

Status sync_file(int fd, const std::string& path) {
  if (::fsync(fd) == 0) return {};
  return errno_error(Code::IO, errno, "sync '%s'", path.c_str());
}

Status write_text(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  PLEXRL_ASSIGN(const UniqueFd fd, create_file(temporary, O_TRUNC));
  PLEXRL_TRY(write_at(fd.get(), text.data(), text.size(), 0, "'" + path + "'"));
  PLEXRL_TRY(sync_file(fd.get(), path));
  if (::rename(temporary.c_str(), path.c_str()) == 0) return {};
  return errno_error(Code::IO, errno, "rename '%s'", temporary.c_str());
}

Status check_room(const std::string& path, std::uint64_t bytes) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0)
    return errno_error(Code::IO, errno, "ask for the room of '%s'", path.c_str());
  const std::uint64_t room = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (room >= bytes) return {};
  return error(
      Code::IO, "the file system of '%s' is too full: %llu bytes are needed, %llu are free",
      path.c_str(), static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(room));
}

}  // namespace plexrl::model
