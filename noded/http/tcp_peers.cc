// SPDX-License-Identifier: Apache-2.0
#include "http/tcp_peers.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace plexrl::http {
namespace {

constexpr std::size_t kReplyBytes = 4096;  // one socket with its attributes has some hundred
constexpr int kStrayReplies = 16;

struct Query {
  nlmsghdr head;
  inet_diag_req_v2 body;
};

// Tells an answer from one to another question.
std::uint32_t sequence_of(const sockaddr_in& own, const sockaddr_in& other) {
  return std::uint32_t{own.sin_port} << 16 | other.sin_port;
}

std::uint32_t bit(int state) { return std::uint32_t{1} << static_cast<unsigned>(state); }

Result<sockaddr_in> address_of(int socket, bool peer) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int rc =
      peer ? ::getpeername(socket, generic, &size) : ::getsockname(socket, generic, &size);
  if (rc != 0) return errno_error(Code::AUTH, errno, "the peer's address");
  if (size != sizeof address || address.sin_family != AF_INET)
    return error(Code::AUTH, "the peer has no IPv4 address");
  return address;
}

// For the socket whose own address is `own` and that is connected to `other`.
Status send_query(int netlink, const sockaddr_in& own, const sockaddr_in& other) {
  Query query{};
  query.head.nlmsg_len = sizeof query;
  query.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  query.head.nlmsg_flags = NLM_F_REQUEST;
  query.head.nlmsg_seq = sequence_of(own, other);
  query.body.sdiag_family = AF_INET;
  query.body.sdiag_protocol = IPPROTO_TCP;
  query.body.idiag_states = ~0U;
  query.body.id.idiag_sport = own.sin_port;
  query.body.id.idiag_dport = other.sin_port;
  query.body.id.idiag_src[0] = own.sin_addr.s_addr;
  query.body.id.idiag_dst[0] = other.sin_addr.s_addr;
  query.body.id.idiag_cookie[0] = query.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(netlink, &query, sizeof query, 0, reinterpret_cast<const sockaddr*>(&kernel),
               sizeof kernel) != sizeof query)
    return errno_error(Code::UNSUPPORTED, errno, "ask sock_diag");
  return {};
}

// The kernel has answered when the question was sent.
Result<inet_diag_msg> receive_reply(int netlink, std::uint32_t sequence) {
  alignas(nlmsghdr) std::array<char, kReplyBytes> bytes{};
  for (int i = 0; i < kStrayReplies; ++i) {
    sockaddr_nl from{};
    socklen_t size = sizeof from;
    const ssize_t got = ::recvfrom(netlink, bytes.data(), bytes.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&from), &size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(Code::UNSUPPORTED, errno, "hear from sock_diag");
    if (from.nl_pid != 0 || static_cast<std::size_t>(got) < sizeof(nlmsghdr)) continue;
    const auto* const head = reinterpret_cast<const nlmsghdr*>(bytes.data());
    if (head->nlmsg_seq != sequence) continue;
    if (head->nlmsg_type == NLMSG_ERROR)
      return error(Code::NOT_FOUND, "sock_diag knows no such socket");
    if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        static_cast<std::size_t>(got) < NLMSG_LENGTH(sizeof(inet_diag_msg)))
      continue;
    inet_diag_msg message{};
    std::memcpy(&message, NLMSG_DATA(head), sizeof message);
    return message;
  }
  return error(Code::UNSUPPORTED, "sock_diag gives no answer");
}

Result<inet_diag_msg> ask(int netlink, const sockaddr_in& own, const sockaddr_in& other) {
  PLEXRL_TRY(send_query(netlink, own, other));
  return receive_reply(netlink, sequence_of(own, other));
}

// Without a connected one the kernel gives the listener of the own address.
bool is_between(const inet_diag_msg& message, const sockaddr_in& own, const sockaddr_in& other) {
  return message.idiag_family == AF_INET && message.id.idiag_sport == own.sin_port &&
         message.id.idiag_dport == other.sin_port &&
         message.id.idiag_src[0] == own.sin_addr.s_addr &&
         message.id.idiag_dst[0] == other.sin_addr.s_addr;
}

bool is_connected(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return ((bit(TCP_ESTABLISHED) | bit(TCP_CLOSE_WAIT)) & bit(info.tcpi_state)) != 0;
}

}  // namespace

Result<TcpPeers> TcpPeers::open(int listener) {
  UniqueFd netlink(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink) return errno_error(Code::UNSUPPORTED, errno, "open sock_diag");
  PLEXRL_ASSIGN(const sockaddr_in own, address_of(listener, false));
  const auto found = ask(netlink.get(), own, {});
  struct stat status {};
  if (found && ::fstat(listener, &status) == 0 && found->idiag_state == TCP_LISTEN &&
      found->idiag_inode == status.st_ino)
    return TcpPeers(std::move(netlink));
  return error(Code::UNSUPPORTED,
               "HTTP by TCP: sock_diag does not show the listening socket: the kernel lacks "
               "tcp_diag, or the socket is of another network namespace");
}

Result<wire::PeerCredentials> TcpPeers::find(int connection) const {
  PLEXRL_ASSIGN(const sockaddr_in other, address_of(connection, false));
  PLEXRL_ASSIGN(const sockaddr_in own, address_of(connection, true));
  const auto peer = ask(netlink_.get(), own, other);
  const std::uint32_t open = bit(TCP_ESTABLISHED) | bit(TCP_FIN_WAIT1) | bit(TCP_FIN_WAIT2);
  if (!peer || !is_between(*peer, own, other) || (open & bit(peer->idiag_state)) == 0 ||
      peer->idiag_inode == 0 || !is_connected(connection))
    return error(Code::AUTH, "the peer is gone");
  return wire::PeerCredentials{peer->idiag_uid, static_cast<gid_t>(-1), 0};
}

}  // namespace plexrl::http
