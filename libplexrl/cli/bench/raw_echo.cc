// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/raw_echo.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace plexrl::cli {
namespace {

constexpr std::size_t kReadBytes = 64U << 10;
constexpr int kEvents = 64;

// The other side of one connection. Everything that the echo needs is made before the fork, so that
// the child only makes system calls.
struct Peer {
  UniqueFd socket;
  std::size_t request_bytes = 0;  // of the request that is not complete
};

class Echo {
 public:
  Echo(std::vector<Peer> peers, UniqueFd epoll, const ExchangeSizes& sizes)
      : peers_(std::move(peers)), epoll_(std::move(epoll)), sizes_(sizes), in_(kReadBytes) {
    out_.resize(kReadBytes / sizes_.request_bytes * sizes_.reply_bytes + sizes_.reply_bytes);
  }
  [[nodiscard]] Status watch() {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peers_[i].socket.get(), &event) != 0)
        return errno_error(Code::IO, errno, "epoll");
    }
    return {};
  }
  // Until a peer goes.
  void run() {
    std::array<epoll_event, kEvents> events{};
    while (true) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), kEvents, -1);
      if (count < 0 && errno != EINTR) return;
      for (int i = 0; i < count; ++i)
        if (!answer(peers_[events[static_cast<std::size_t>(i)].data.u64])) return;
    }
  }

 private:
  bool answer(Peer& peer) {
    const ssize_t got = ::recv(peer.socket.get(), in_.data(), in_.size(), 0);
    if (got <= 0) return got < 0 && errno == EINTR;
    peer.request_bytes += static_cast<std::size_t>(got);
    const std::size_t replies = peer.request_bytes / sizes_.request_bytes;
    peer.request_bytes %= sizes_.request_bytes;
    const std::size_t bytes = replies * sizes_.reply_bytes;
    return bytes == 0 || ::send(peer.socket.get(), out_.data(), bytes, MSG_NOSIGNAL) ==
                             static_cast<ssize_t>(bytes);
  }

  std::vector<Peer> peers_;
  UniqueFd epoll_;
  ExchangeSizes sizes_;
  std::vector<char> in_;
  std::vector<char> out_;
};

Status connect_pairs(std::size_t count, std::vector<UniqueFd>& ours, std::vector<Peer>& theirs) {
  for (std::size_t i = 0; i < count; ++i) {
    int pair[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
      return errno_error(Code::IO, errno, "socketpair");
    ours.emplace_back(pair[0]);
    theirs.push_back({UniqueFd(pair[1]), 0});
  }
  return {};
}

}  // namespace

RawEcho::RawEcho(RawEcho&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), sockets_(std::move(other.sockets_)) {}

RawEcho::~RawEcho() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Result<RawEcho> RawEcho::start(std::size_t connections, const ExchangeSizes& sizes) {
  if (sizes.request_bytes == 0 || sizes.reply_bytes == 0 || sizes.request_bytes > kReadBytes)
    return error(Code::INVALID_ARGUMENT, "raw echo: sizes of 1..%zu bytes", kReadBytes);
  RawEcho echo;
  std::vector<Peer> peers;
  PLEXRL_TRY(connect_pairs(connections, echo.sockets_, peers));
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return errno_error(Code::IO, errno, "epoll");
  Echo other_side(std::move(peers), std::move(epoll), sizes);
  PLEXRL_TRY(other_side.watch());
  const pid_t parent = ::getpid();
  echo.pid_ = ::fork();
  if (echo.pid_ < 0) return errno_error(Code::IO, errno, "fork");
  if (echo.pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const UniqueFd& socket : echo.sockets_) ::close(socket.get());
    if (::getppid() == parent) other_side.run();
    ::_exit(0);
  }
  return echo;
}

}  // namespace plexrl::cli
