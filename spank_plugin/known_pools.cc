// SPDX-License-Identifier: Apache-2.0
#include "known_pools.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <sstream>

#include "base/unique_fd.h"

namespace plexrl::job_submit {
namespace {

constexpr std::size_t kMaxFile = 1U << 20;

Status write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  const UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno_error(Code::IO, errno, "create '%s'", temporary.c_str());
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0)
    return errno_error(Code::IO, errno, "write '%s'", path.c_str());
  return {};
}

Result<std::string> read_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file && errno == ENOENT) return std::string();
  if (!file) return errno_error(Code::IO, errno, "open '%s'", path.c_str());
  std::string text(kMaxFile, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size < 0) return errno_error(Code::IO, errno, "read '%s'", path.c_str());
  text.resize(static_cast<std::size_t>(size));
  return text;
}

}  // namespace

Status KnownPools::remember(const config::SiteConfig& site) {
  std::string text;
  for (const config::PoolEntry& pool : site.pools) text += pool.partition + " " + pool.name + "\n";
  if (path_.empty() || text == written_) return {};
  PLEXRL_TRY(write_file(path_, text));
  written_ = text;
  return {};
}

Result<config::SiteConfig> KnownPools::recall() {
  config::SiteConfig site;
  if (path_.empty()) return site;
  PLEXRL_ASSIGN(written_, read_file(path_));
  std::istringstream lines(written_);
  for (std::string line; std::getline(lines, line);) {
    config::PoolEntry pool;
    std::istringstream words(line);
    if (!(words >> pool.partition >> pool.name))
      return error(Code::CORRUPT, "'%s': not lines of a partition and a pool", path_.c_str());
    site.pools.push_back(std::move(pool));
  }
  return site;
}

}  // namespace plexrl::job_submit
