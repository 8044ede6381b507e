// SPDX-License-Identifier: Apache-2.0
#include "cli/train/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

namespace plexrl::cli {
namespace {

std::string directory_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

Status sync_directory(const std::string& path) {
  const UniqueFd directory(::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0)
    return errno_error(Code::IO, errno, "fsync directory of '%s'", path.c_str());
  return {};
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return errno_error(Code::IO, errno, "write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

Result<PendingFile> PendingFile::create(const std::string& path) {
  const std::string temporary = path + ".tmp";
  UniqueFd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return errno_error(Code::IO, errno, "create '%s'", temporary.c_str());
  return PendingFile(path, std::move(fd));
}

PendingFile::~PendingFile() {
  if (!path_.empty()) ::unlink((path_ + ".tmp").c_str());
}

Status PendingFile::publish() {
  if (::fsync(fd_.get()) != 0) return errno_error(Code::IO, errno, "fsync '%s'", path_.c_str());
  if (::rename((path_ + ".tmp").c_str(), path_.c_str()) != 0)
    return errno_error(Code::IO, errno, "rename '%s.tmp'", path_.c_str());
  const std::string path = std::exchange(path_, {});
  return sync_directory(path);
}

Status write_atomically(const std::string& path, std::string_view text) {
  PLEXRL_ASSIGN(PendingFile file, PendingFile::create(path));
  PLEXRL_TRY(write_all(file.fd(), text).within(path));
  return file.publish();
}

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "open '%s'",
                       path.c_str());
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(Code::IO, errno, "read '%s'", path.c_str());
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > limit)
      return error(Code::TOO_LARGE, "'%s' is larger than %zu bytes", path.c_str(), limit);
  }
}

Status can_create(const std::string& path) {
  if (::access(directory_of(path).c_str(), W_OK | X_OK) == 0) return {};
  return errno_error(Code::IO, errno, "'%s': its directory cannot be written", path.c_str());
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace plexrl::cli
