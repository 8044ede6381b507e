// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace plexrl::runtime {
namespace {

namespace fs = std::filesystem;
constexpr const char* kDraftMark = "#draft";  // not possible in a name

Status sync_folder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return errno_error(Code::IO, errno, "sync '%s'", path.c_str());
  return {};
}

std::uint64_t size_of(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
}

}  // namespace

std::string CheckpointStore::folder(std::uint32_t uid) const {
  return dir_ + "/" + std::to_string(uid);
}

Status CheckpointStore::open() {
  std::error_code failed;
  fs::create_directories(dir_, failed);
  if (failed) return error(Code::IO, "create '%s': %s", dir_.c_str(), failed.message().c_str());
  if (::chmod(dir_.c_str(), 0700) != 0)
    return errno_error(Code::IO, errno, "chmod '%s'", dir_.c_str());
  auto entry = fs::recursive_directory_iterator(dir_, failed);
  for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
    std::error_code ignored;
    if (entry->path().filename().string().find(kDraftMark) != std::string::npos)
      fs::remove(entry->path(), ignored);
  }
  if (failed) return error(Code::IO, "read '%s': %s", dir_.c_str(), failed.message().c_str());
  return {};
}

std::uint64_t CheckpointStore::used_bytes(std::uint32_t uid) const {
  std::uint64_t bytes = 0;
  std::error_code failed;
  auto entry = fs::directory_iterator(folder(uid), failed);
  for (; !failed && entry != fs::directory_iterator(); entry.increment(failed))
    bytes += size_of(entry->path().string());
  return bytes;
}

Result<CheckpointStore::Draft> CheckpointStore::begin(std::uint32_t uid, const std::string& name) {
  if (used_bytes(uid) >= quota_bytes_)
    return error(Code::NO_CAPACITY, "the store holds its quota of %llu MiB for uid %u already",
                 static_cast<unsigned long long>(quota_bytes_ >> 20), uid);
  const std::string parent = folder(uid);
  if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error(Code::IO, errno, "create '%s'", parent.c_str());
  Draft draft;
  draft.uid = uid;
  draft.target = parent + "/" + name;
  draft.path = draft.target + kDraftMark + std::to_string(next_draft_++);
  draft.fd.reset(
      ::open(draft.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!draft.fd) return errno_error(Code::IO, errno, "create '%s'", draft.path.c_str());
  return draft;
}

Status CheckpointStore::finish(Draft draft) {
  const std::uint64_t others = used_bytes(draft.uid) - size_of(draft.target);
  if (others > quota_bytes_) {
    discard(std::move(draft));
    return error(Code::NO_CAPACITY, "the checkpoint does not fit in the store's quota of %llu MiB",
                 static_cast<unsigned long long>(quota_bytes_ >> 20));
  }
  const bool stored =
      ::fsync(draft.fd.get()) == 0 && ::rename(draft.path.c_str(), draft.target.c_str()) == 0;
  if (!stored) {
    const int reason = errno;
    const std::string target = draft.target;
    discard(std::move(draft));
    return errno_error(Code::IO, reason, "store '%s'", target.c_str());
  }
  return sync_folder(folder(draft.uid));
}

void CheckpointStore::discard(Draft draft) { ::unlink(draft.path.c_str()); }

Result<UniqueFd> CheckpointStore::read(std::uint32_t uid, const std::string& name) const {
  const std::string path = folder(uid) + "/" + name;
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd) return fd;
  if (errno == ENOENT)
    return error(Code::NOT_FOUND, "no checkpoint '%s' of yours in the store", name.c_str());
  return errno_error(Code::IO, errno, "open '%s'", path.c_str());
}

}  // namespace plexrl::runtime
