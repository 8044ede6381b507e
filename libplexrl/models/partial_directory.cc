// SPDX-License-Identifier: Apache-2.0
#include "models/partial_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "models/write_file.h"

namespace plexrl::model {
namespace {

// "dir/" is "dir".
std::string trimmed(std::string name) {
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  return name;
}

Status not_there(const std::string& name) {
  struct stat info {};
  if (::lstat(name.c_str(), &info) != 0) return {};
  return error(Code::EXISTS, "'%s' is there already; remove it first", name.c_str());
}

// Not every file system knows RENAME_NOREPLACE (NFS does not). Without it an empty directory that
// somebody made meanwhile would be replaced, which loses nothing; one with contents is not.
Status rename_to(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno == EINVAL || errno == ENOSYS) {
    PLEXRL_TRY(not_there(to));
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
  }
  const bool there = errno == EEXIST || errno == ENOTEMPTY;
  return errno_error(there ? Code::EXISTS : Code::IO, errno, "rename to '%s'", to.c_str());
}

}  // namespace

Result<PartialDirectory> PartialDirectory::open(const std::string& raw) {
  const std::string name = trimmed(raw);
  PLEXRL_TRY(not_there(name));
  const std::string path = name + std::string(kPartialSuffix);
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "make directory '%s'",
                       path.c_str());
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0)
    return errno_error(Code::IO, errno, "open directory '%s'", path.c_str());
  if (info.st_uid != ::geteuid())
    return error(Code::PERMISSION, "'%s' belongs to user %u, who could change what is in it",
                 path.c_str(), info.st_uid);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return errno_error(errno == EWOULDBLOCK ? Code::BUSY : Code::IO, errno,
                       "'%s' is being written by another command: lock", path.c_str());
  return PartialDirectory(name, std::move(fd));
}

Status PartialDirectory::keep_only(const std::set<std::string>& files) const {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(path_, code))
    if (files.count(entry.path().filename()) == 0)
      if (std::filesystem::remove_all(entry.path(), code); code) break;
  if (!code) return {};
  return error(Code::IO, "clear '%s': %s", path_.c_str(), code.message().c_str());
}

Status PartialDirectory::write_checksums(const ByteProgress& progress) const {
  std::error_code code;
  Checksums sums;
  for (const auto& entry : std::filesystem::directory_iterator(path_, code)) {
    const std::string name = entry.path().filename();
    if (name == kChecksumFile) continue;
    PLEXRL_ASSIGN(sums[name], file_sha256(entry.path(), progress));
  }
  if (code) return error(Code::IO, "read '%s': %s", path_.c_str(), code.message().c_str());
  return write_text(file(kChecksumFile), checksum_text(sums));
}

Status PartialDirectory::publish() {
  if (::fsync(fd_.get()) != 0) return errno_error(Code::IO, errno, "sync '%s'", path_.c_str());
  PLEXRL_TRY(rename_to(path_, name_));
  const std::filesystem::path parent = std::filesystem::absolute(name_).parent_path();
  const UniqueFd above(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (above && ::fsync(above.get()) == 0) return {};
  return errno_error(Code::IO, errno, "sync '%s'", parent.c_str());
}

void PartialDirectory::remove() {
  std::error_code code;
  std::filesystem::remove_all(path_, code);
}

}  // namespace plexrl::model
