// SPDX-License-Identifier: Apache-2.0
#include "runtime/pools.h"

#include <sys/stat.h>

#include <cerrno>

namespace plexrl::runtime {
namespace {

Result<std::string> file_identity(int fd) {
  if (fd < 0) return std::string("none");
  struct stat file {};
  if (::fstat(fd, &file) != 0) return errno_error(Code::IO, errno, "stat a pool");
  return std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino);
}

}  // namespace

Result<std::string> pool_identity(int device, int host) {
  PLEXRL_ASSIGN(const std::string first, file_identity(device));
  PLEXRL_ASSIGN(const std::string second, file_identity(host));
  return first + " " + second;
}

std::string held_identity(std::span<const UniqueFd> fds) {
  if (fds.empty() || fds.size() > 2) return {};
  auto identity = pool_identity(fds.size() == 2 ? fds[0].get() : -1, fds.back().get());
  return identity ? *std::move(identity) : std::string();
}

}  // namespace plexrl::runtime
