// SPDX-License-Identifier: Apache-2.0
#include "wire/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <ctime>

namespace plexrl::wire {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.find('\0') != std::string::npos)
    return error(Code::INVALID_ARGUMENT, "socket path is empty or holds a zero byte");
  if (path.size() >= sizeof address.sun_path)
    return error(
        Code::INVALID_ARGUMENT,
        "socket path '%s' has %zu bytes, the kernel allows %zu: choose a shorter directory",
        path.c_str(), path.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Result<UniqueFd> new_socket(int flags) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) return errno_error(Code::IO, errno, "socket");
  return fd;
}

const sockaddr* generic(const sockaddr_un& address) noexcept {
  return reinterpret_cast<const sockaddr*>(&address);
}

void sleep_ms(long milliseconds) noexcept {
  const timespec pause{0, milliseconds * kMillisecond.ns};
  ::nanosleep(&pause, nullptr);
}

Status remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return {};  // bind tells what is wrong, if anything
  if (!S_ISSOCK(st.st_mode))
    return error(Code::EXISTS, "'%s' exists and is not a socket: move it away", path.c_str());
  PLEXRL_ASSIGN(const UniqueFd probe, new_socket(SOCK_NONBLOCK));
  const int rc = ::connect(probe.get(), generic(address), sizeof address);
  if (rc == 0 || errno != ECONNREFUSED)
    return error(Code::EXISTS, "'%s' is served by another process: stop it first", path.c_str());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return errno_error(Code::IO, errno, "remove the stale socket '%s'", path.c_str());
  return {};
}

Status connect_failure(const std::string& path, int errno_value) {
  switch (errno_value) {
    case ENOENT:
    case ECONNREFUSED:
      return error(Code::UNAVAILABLE, "nobody listens on '%s': is plexrld running on this host?",
                   path.c_str());
    case EACCES:
    case EPERM:
      return errno_error(Code::PERMISSION, errno_value, "connect to '%s'", path.c_str());
    default:
      return errno_error(Code::IO, errno_value, "connect to '%s'", path.c_str());
  }
}

}  // namespace

Result<UniqueFd> listen_unix(const std::string& path, mode_t mode, int backlog) {
  PLEXRL_ASSIGN(const sockaddr_un address, address_of(path));
  PLEXRL_TRY(remove_stale(path, address));
  PLEXRL_ASSIGN(UniqueFd fd, new_socket(SOCK_NONBLOCK));
  if (::bind(fd.get(), generic(address), sizeof address) != 0)
    return errno_error(errno == EADDRINUSE ? Code::EXISTS : Code::IO, errno, "bind '%s'",
                       path.c_str());
  // Until listen() nobody can connect, so there is no moment with a wider mode.
  if (::chmod(path.c_str(), mode) != 0)
    return errno_error(Code::IO, errno, "set the mode of '%s'", path.c_str());
  if (::listen(fd.get(), backlog) != 0)
    return errno_error(Code::IO, errno, "listen on '%s'", path.c_str());
  return fd;
}

Result<UniqueFd> accept_unix(int listener) {
  while (true) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) return fd;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return error(Code::BUSY, "no connection waits");
    const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    return errno_error(full ? Code::NO_CAPACITY : Code::IO, errno, "accept");
  }
}

Result<UniqueFd> connect_unix(const std::string& path, TimePoint deadline) {
  PLEXRL_ASSIGN(const sockaddr_un address, address_of(path));
  PLEXRL_ASSIGN(UniqueFd fd, new_socket(SOCK_NONBLOCK));
  while (::connect(fd.get(), generic(address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return connect_failure(path, errno);
    // The backlog is full. A unix socket cannot be polled for that, so look again.
    if (system_clock().now() >= deadline)
      return error(Code::TIMEOUT, "connect to '%s': the service does not accept", path.c_str());
    sleep_ms(5);
  }
  return fd;
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return errno_error(Code::IO, errno, "read the peer's credentials");
  return PeerCredentials{credentials.uid, credentials.gid, credentials.pid};
}

}  // namespace plexrl::wire
