// SPDX-License-Identifier: Apache-2.0
// TcpPeers: which user is at the other end of a TCP connection within this machine. TCP has no
// SO_PEERCRED; the kernel is asked by netlink (sock_diag) for the socket that has the same two
// addresses the other way round, and says who made it.
//
// What makes the answer safe:
// - the other socket must still be somebody's: of one that was closed the kernel says uid 0;
// - our socket must be connected when the answer is there. As long as it is no other socket can be
//   connected under the same two addresses, so the one that was found is the one that sent;
// - open() finds the listener itself that way, so the question is asked where it listens: in
//   another network namespace the same addresses are somebody else's.
// Any thread, one at a time; never blocks.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/unix_socket.h"

namespace plexrl::http {

class TcpPeers {
 public:
  // UNSUPPORTED: this kernel does not tell, or the listener is of another network namespace.
  [[nodiscard]] static Result<TcpPeers> open(int listener);

  // AUTH: nobody is there any more, or it is not known who. The group and pid are not known: -1, 0.
  [[nodiscard]] Result<wire::PeerCredentials> find(int connection) const;

 private:
  explicit TcpPeers(UniqueFd netlink) : netlink_(std::move(netlink)) {}
  UniqueFd netlink_;
};

}  // namespace plexrl::http
