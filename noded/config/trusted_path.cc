// SPDX-License-Identifier: Apache-2.0
#include "config/trusted_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

namespace plexrl::config {
namespace {

Status check_one(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return errno_error(Code::IO, errno, "cannot examine '%s'", path.c_str());
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return error(Code::PERMISSION, "'%s' belongs to user %u: run 'chown root %s'", path.c_str(),
                 info.st_uid, path.c_str());
  const bool sticky_directory = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky_directory)
    return error(Code::PERMISSION, "'%s' can be written by others: run 'chmod go-w %s'",
                 path.c_str(), path.c_str());
  return {};
}

struct Free {
  void operator()(char* text) const { std::free(text); }  // NOLINT: realpath's memory
};

}  // namespace

Status check_trusted_path(const std::string& path) {
  const std::unique_ptr<char, Free> resolved(::realpath(path.c_str(), nullptr));
  if (!resolved)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "cannot find '%s'",
                       path.c_str());
  for (std::string part = resolved.get(); !part.empty(); part.erase(part.rfind('/')))
    PLEXRL_TRY(check_one(part));
  return check_one("/");
}

}  // namespace plexrl::config
