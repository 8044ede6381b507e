// SPDX-License-Identifier: Apache-2.0
// ReapServer: answers the connections of plexrl-reap, one after the other. A connection gets one
// request and kConnectionTime in all; whoever is slow, is not plexrld's user or says something else
// is cut off. One thread; blocks with deadlines only.
#pragma once

#include <sys/types.h>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::reap {

class ReapServer {
 public:
  static constexpr Duration kConnectionTime{2 * kSecond.ns};

  // `listener`: a listening AF_UNIX stream socket. `user`: the only uid that is served.
  ReapServer(UniqueFd listener, uid_t user) : listener_(std::move(listener)), user_(user) {}

  // Serves until nobody has connected for `idle`. IO: the listener cannot be used.
  [[nodiscard]] Status run(Duration idle);

  // One connection; PERMISSION, PROTOCOL, TIMEOUT say why it was cut off. For tests.
  [[nodiscard]] Status serve(const UniqueFd& connection) const;

 private:
  UniqueFd listener_;
  uid_t user_;
};

}  // namespace plexrl::reap
