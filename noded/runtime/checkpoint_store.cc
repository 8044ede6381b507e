// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace plexrl::runtime {
namespace {

namespace fs = std::filesystem;
constexpr const char* kDraftMark = "#draft";  // not possible in a name
constexpr const char* kTextMark = "#text.";   // "#text.<name>"
constexpr std::size_t kMaxTextBytes = 4096;
constexpr const char* kHeldMark = "#held";  // "#held<model>.<seq>"

Status sync_folder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return errno_error(Code::IO, errno, "sync '%s'", path.c_str());
  return {};
}

// A held file that still has its name is that name's.
std::uint64_t own_size(const fs::path& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return 0;
  const bool held = path.filename().string().rfind(kHeldMark, 0) == 0;
  return held && st.st_nlink > 1 ? 0 : static_cast<std::uint64_t>(st.st_size);
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
    bytes += own_size(entry->path());
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

// ---- texts ----

Status CheckpointStore::describe(std::uint32_t uid, const std::string& name,
                                 const std::string& text) {
  if (text.size() > kMaxTextBytes)
    return error(Code::TOO_LARGE, "the text of checkpoint '%s' is beyond %zu bytes", name.c_str(),
                 kMaxTextBytes);
  const std::string parent = folder(uid);
  if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error(Code::IO, errno, "create '%s'", parent.c_str());
  const std::string path = parent + "/" + kTextMark + name;
  const std::string draft = path + kDraftMark;
  const UniqueFd fd(
      ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  const bool written =
      fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(fd.get()) == 0 && ::rename(draft.c_str(), path.c_str()) == 0;
  if (written) return sync_folder(parent);
  const int reason = errno;
  ::unlink(draft.c_str());
  return errno_error(Code::IO, reason, "write '%s'", path.c_str());
}

Result<CheckpointStore::Described> CheckpointStore::described(std::uint32_t uid,
                                                              const std::string& name) const {
  Described found;
  found.name = name;
  struct stat st {};
  const UniqueFd fd(
      ::open((folder(uid) + "/" + kTextMark + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd || ::stat((folder(uid) + "/" + name).c_str(), &st) != 0)
    return error(Code::NOT_FOUND, "no checkpoint '%s' of yours in the store", name.c_str());
  found.bytes = static_cast<std::uint64_t>(st.st_size);
  found.saved_s = st.st_mtime;
  found.text.resize(kMaxTextBytes);
  const ssize_t bytes = ::read(fd.get(), found.text.data(), found.text.size());
  if (bytes < 0) return errno_error(Code::IO, errno, "read the text of '%s'", name.c_str());
  found.text.resize(static_cast<std::size_t>(bytes));
  return found;
}

std::vector<CheckpointStore::Described> CheckpointStore::all_described(
    std::uint32_t uid, const std::string& prefix) const {
  std::vector<Described> found;
  std::error_code failed;
  auto entry = fs::directory_iterator(folder(uid), failed);
  for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || name.find('#') != std::string::npos) continue;
    if (auto one = described(uid, name)) found.push_back(*std::move(one));
  }
  std::sort(found.begin(), found.end(), [](const Described& a, const Described& b) {
    return a.saved_s != b.saved_s ? a.saved_s > b.saved_s : a.name > b.name;
  });
  return found;
}

Status CheckpointStore::remove(std::uint32_t uid, const std::string& name) {
  const std::string path = folder(uid) + "/" + name;
  if (::unlink(path.c_str()) != 0) {
    if (errno != ENOENT) return errno_error(Code::IO, errno, "remove '%s'", path.c_str());
    return error(Code::NOT_FOUND, "no checkpoint '%s' of yours in the store", name.c_str());
  }
  ::unlink((folder(uid) + "/" + kTextMark + name).c_str());
  return sync_folder(folder(uid));
}

// ---- holds ----

std::string CheckpointStore::held_path(std::uint32_t uid, const Holder& holder) const {
  return folder(uid) + "/" + kHeldMark + std::to_string(holder.model.value) + "." +
         std::to_string(holder.seq);
}

Status CheckpointStore::hold(std::uint32_t uid, const std::string& name, const Holder& holder) {
  const std::string held = held_path(uid, holder);
  if (::link((folder(uid) + "/" + name).c_str(), held.c_str()) == 0 || errno == EEXIST) return {};
  if (errno == ENOENT)
    return error(Code::NOT_FOUND, "no checkpoint '%s' of yours in the store", name.c_str());
  return errno_error(Code::IO, errno, "link '%s'", held.c_str());
}

Result<UniqueFd> CheckpointStore::read_held(std::uint32_t uid, const Holder& holder) const {
  const std::string held = held_path(uid, holder);
  UniqueFd fd(::open(held.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return errno_error(Code::IO, errno, "open '%s'", held.c_str());
  return fd;
}

void CheckpointStore::let_go(std::uint32_t uid, const Holder& holder) {
  ::unlink(held_path(uid, holder).c_str());
}

std::map<CheckpointStore::Holder, std::uint32_t> CheckpointStore::holds() const {
  std::map<Holder, std::uint32_t> found;
  std::error_code failed;
  auto entry = fs::recursive_directory_iterator(dir_, failed);
  for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
    Holder holder;
    unsigned long long model = 0;
    unsigned long long seq = 0;
    const std::string name = entry->path().filename().string();
    if (std::sscanf(name.c_str(), "#held%llu.%llu", &model, &seq) != 2) continue;
    const std::string uid = entry->path().parent_path().filename().string();
    found[{ModelId{model}, seq}] =
        static_cast<std::uint32_t>(std::strtoul(uid.c_str(), nullptr, 10));
  }
  return found;
}

}  // namespace plexrl::runtime
