// SPDX-License-Identifier: Apache-2.0
#include "transport/frame_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>

namespace plexrl::transport {
namespace {

constexpr std::size_t kMostUnsent = 4 * kMaxFrameBytes;
constexpr int kBacklog = 64;
constexpr int kSocketFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

struct AddressDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Address = std::unique_ptr<addrinfo, AddressDeleter>;

Result<Address> parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    return error(Code::INVALID_ARGUMENT, "address '%s': not host:port", text.c_str());
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found);
  if (failed != 0)
    return error(Code::INVALID_ARGUMENT, "address '%s': %s", text.c_str(), ::gai_strerror(failed));
  return Address(found);
}

std::string printed(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const generic = reinterpret_cast<sockaddr*>(&at);
  ::getsockname(fd, generic, &size);
  ::getnameinfo(generic, size, host.data(), host.size(), port.data(), port.size(),
                NI_NUMERICHOST | NI_NUMERICSERV);
  const bool brackets = at.ss_family == AF_INET6;
  return (brackets ? "[" : "") + std::string(host.data()) + (brackets ? "]:" : ":") + port.data();
}

Status gone(int number) {
  return number == 0 ? error(Code::UNAVAILABLE, "the peer has closed the connection")
                     : errno_error(Code::UNAVAILABLE, number, "the connection");
}

}  // namespace

Result<std::pair<UniqueFd, std::string>> listen_on(const std::string& address) {
  PLEXRL_ASSIGN(const Address parsed, parse(address));
  UniqueFd fd(::socket(parsed->ai_family, SOCK_STREAM | kSocketFlags, 0));
  const int on = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), parsed->ai_addr, parsed->ai_addrlen) != 0 ||
      ::listen(fd.get(), kBacklog) != 0)
    return errno_error(Code::IO, errno, "listen on %s", address.c_str());
  std::string bound = printed(fd.get());
  return std::pair(std::move(fd), std::move(bound));
}

Result<FrameSocket> FrameSocket::connect_to(const std::string& address) {
  PLEXRL_ASSIGN(const Address parsed, parse(address));
  UniqueFd fd(::socket(parsed->ai_family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd) return errno_error(Code::UNAVAILABLE, errno, "a socket");
  if (::connect(fd.get(), parsed->ai_addr, parsed->ai_addrlen) != 0 && errno != EINPROGRESS)
    return gone(errno);
  return FrameSocket(std::move(fd), false);
}

Status FrameSocket::send(std::string_view bytes) {
  if (bytes.size() > kMaxFrameBytes || out_.size() + bytes.size() > kMostUnsent)
    return error(Code::UNAVAILABLE, "the peer does not read");
  auto size = static_cast<std::uint32_t>(bytes.size());
  for (int i = 0; i < 4; ++i, size >>= 8) out_.push_back(static_cast<char>(size & 0xff));
  out_.append(bytes);
  return connected_ ? flush() : Status();
}

Status FrameSocket::flush() {
  if (!connected_) {
    int failed = 0;
    socklen_t size = sizeof failed;
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &failed, &size);
    if (failed != 0) return gone(failed);
    connected_ = true;
  }
  while (!out_.empty()) {
    const ssize_t written = ::send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN ? Status() : gone(errno);
    out_.erase(0, static_cast<std::size_t>(written));
  }
  return {};
}

Status FrameSocket::receive(const std::function<void(std::string_view)>& take) {
  std::array<char, 4096> part{};
  const ssize_t got = ::recv(fd_.get(), part.data(), part.size(), 0);
  if (got == 0) return gone(0);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Status() : gone(errno);
  in_.append(part.data(), static_cast<std::size_t>(got));
  while (in_.size() >= 4) {
    std::size_t size = 0;
    for (std::size_t i = 4; i-- > 0;) size = size << 8 | static_cast<std::uint8_t>(in_[i]);
    if (size > kMaxFrameBytes)
      return error(Code::PROTOCOL, "a frame of %zu bytes: at most %zu", size, kMaxFrameBytes);
    if (in_.size() < 4 + size) break;
    const std::string frame = in_.substr(4, size);
    in_.erase(0, 4 + size);
    take(frame);
  }
  return {};
}

void FrameSocket::end_sending() { ::shutdown(fd_.get(), SHUT_WR); }

}  // namespace plexrl::transport
