// SPDX-License-Identifier: Apache-2.0
#include "http/tcp_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>

namespace plexrl::http {
namespace {

constexpr int kBacklog = 1024;

int socket_option(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

// Ports from this on are anybody's.
unsigned first_free_port() {
  unsigned port = 0;
  std::ifstream file("/proc/sys/net/ipv4/ip_unprivileged_port_start");
  return file >> port ? port : 1024;
}

Result<UniqueFd> check_passed(const config::LoopbackAddress& address, UniqueFd passed) {
  sockaddr_in own{};
  socklen_t size = sizeof own;
  const int fd = passed.get();
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      own.sin_family != AF_INET || socket_option(fd, SO_TYPE) != SOCK_STREAM ||
      socket_option(fd, SO_PROTOCOL) != IPPROTO_TCP || socket_option(fd, SO_ACCEPTCONN) != 1)
    return error(Code::INVALID_ARGUMENT,
                 "the socket that was passed on for HTTP is no listening IPv4 TCP socket");
  const config::LoopbackAddress there{ntohl(own.sin_addr.s_addr), ntohs(own.sin_port)};
  if (there != address)
    return error(Code::INVALID_ARGUMENT,
                 "http_address is %s, but the socket that was passed on listens at %s: make "
                 "plexrld-http.socket and the site file agree",
                 config::to_text(address).c_str(), config::to_text(there).c_str());
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return errno_error(Code::IO, errno, "the HTTP socket that was passed on");
  return passed;
}

}  // namespace

Result<UniqueFd> open_tcp_listener(const config::LoopbackAddress& address, UniqueFd passed) {
  if (passed) return check_passed(address, std::move(passed));
  const std::string name = config::to_text(address);
  if (address.port >= first_free_port())
    return error(Code::INVALID_ARGUMENT,
                 "http_address %s: any user could take this port while plexrld is away, and be "
                 "sent tokens: write one below %u, or let systemd hold it (plexrld-http.socket)",
                 name.c_str(), first_free_port());
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error(Code::IO, errno, "socket");
  // Connections of an earlier plexrld may still be ending.
  const int on = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(address.port);
  where.sin_addr.s_addr = htonl(address.host);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0) {
    const Code code = errno == EADDRINUSE ? Code::EXISTS
                      : errno == EACCES   ? Code::PERMISSION
                                          : Code::IO;
    return errno_error(
        code, errno, "http_address %s%s", name.c_str(),
        code == Code::PERMISSION ? ": let systemd hold the port (plexrld-http.socket)" : "");
  }
  if (::listen(fd.get(), kBacklog) != 0)
    return errno_error(Code::IO, errno, "listen on %s", name.c_str());
  return fd;
}

}  // namespace plexrl::http
