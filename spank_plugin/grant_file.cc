// SPDX-License-Identifier: Apache-2.0
#include "grant_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

namespace plexrl::spank {
namespace {

constexpr std::size_t kMaxFile = 8192;  // a grant has at most 4096 bytes

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error(Code::IO, errno, "write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<std::string> read_all(int fd) {
  std::string text(kMaxFile, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(Code::IO, errno, "read");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

// Takes "NUMBER " off the front.
bool take_number(std::string_view* text, std::uint32_t* out) {
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), *out);
  if (failure != std::errc() || end == text->data() + text->size() || *end != ' ') return false;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()) + 1);
  return true;
}

}  // namespace

Result<GrantFiles> GrantFiles::open(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error(Code::IO, errno, "cannot make '%s'", directory.c_str());
  return open_existing(directory);
}

Result<GrantFiles> GrantFiles::open_existing(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "cannot open '%s'",
                       directory.c_str());
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0)
    return errno_error(Code::IO, errno, "cannot examine '%s'", directory.c_str());
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return error(Code::PERMISSION, "'%s' must belong to root with mode 0700", directory.c_str());
  return GrantFiles(std::move(fd));
}

Status GrantFiles::note(const NotedJob& job) const {
  const std::string name = std::to_string(job.job_id);
  const std::string temporary = name + "." + std::to_string(::getpid());
  const UniqueFd file(::openat(directory_.get(), temporary.c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno_error(Code::IO, errno, "cannot note job %u", job.job_id);
  const std::string text =
      std::to_string(job.uid) + " " + std::to_string(job.gid) + " " + job.grant + "\n";
  Status status = write_all(file.get(), text);
  if (status.ok() &&
      ::renameat(directory_.get(), temporary.c_str(), directory_.get(), name.c_str()) != 0)
    status = errno_error(Code::IO, errno, "rename");
  // On a full file system there is still room for an empty file, which says that this is no
  // ordinary job: read() finds it CORRUPT.
  if (!status.ok() &&
      (::ftruncate(file.get(), 0) != 0 ||
       ::renameat(directory_.get(), temporary.c_str(), directory_.get(), name.c_str()) != 0))
    ::unlinkat(directory_.get(), temporary.c_str(), 0);
  return status.within("note of job " + name);
}

Result<NotedJob> GrantFiles::read(std::uint32_t job_id) const {
  const std::string name = std::to_string(job_id);
  const UniqueFd file(::openat(directory_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "note of job %u",
                       job_id);
  PLEXRL_ASSIGN(const std::string text, read_all(file.get()));
  NotedJob job;
  job.job_id = job_id;
  std::string_view rest = text;
  if (!take_number(&rest, &job.uid) || !take_number(&rest, &job.gid) || rest.empty() ||
      rest.find('\n') != rest.size() - 1)
    return error(Code::CORRUPT,
                 "the prolog's note of job %u is not of the form 'UID GID GRANT': was its file "
                 "system full?",
                 job_id);
  job.grant = rest.substr(0, rest.size() - 1);
  return job;
}

Result<UniqueFd> GrantFiles::lock(std::uint32_t job_id) const {
  UniqueFd file(::openat(directory_.get(), std::to_string(job_id).c_str(),
                         O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return errno_error(Code::IO, errno, "note of job %u", job_id);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  return errno_error(errno == EWOULDBLOCK ? Code::BUSY : Code::IO, errno,
                     "another task opens job %u", job_id);
}

std::vector<NotedJob> GrantFiles::all() const {
  std::vector<NotedJob> jobs;
  UniqueFd copy(::openat(directory_.get(), ".", O_DIRECTORY | O_CLOEXEC));
  DIR* const list = copy ? ::fdopendir(copy.get()) : nullptr;
  if (list == nullptr) return jobs;
  (void)copy.release();  // closedir closes it
  while (const dirent* entry = ::readdir(list)) {
    std::uint32_t job_id = 0;
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    const auto [last, failure] = std::from_chars(entry->d_name, end, job_id);
    if (failure != std::errc() || last != end) continue;
    if (auto job = read(job_id); job) jobs.push_back(*std::move(job));
  }
  ::closedir(list);
  return jobs;
}

Result<UniqueFd> GrantFiles::lock_all(TimePoint deadline) const {
  UniqueFd copy(::openat(directory_.get(), ".", O_DIRECTORY | O_CLOEXEC));
  if (!copy) return errno_error(Code::IO, errno, "notes of jobs");
  while (::flock(copy.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return errno_error(Code::IO, errno, "lock of the notes of jobs");
    if (system_clock().now() >= deadline)
      return error(Code::BUSY, "the notes of jobs are locked by another hook");
    ::usleep(10'000);
  }
  return copy;
}

Status GrantFiles::forget(std::uint32_t job_id) const {
  const std::string name = std::to_string(job_id);
  if (::unlinkat(directory_.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return errno_error(Code::IO, errno, "note of job %u: cannot remove", job_id);
}

}  // namespace plexrl::spank
