// SPDX-License-Identifier: Apache-2.0
// RawEcho: a process that answers every request on its sockets with bytes of the size of a reply,
// and does nothing else: epoll, one recv and one send for whatever has come. What an exchange with
// it takes is the floor under an operation of plexrld, which needs the same sockets and the same
// switches to another process and back.
#pragma once

#include <sys/types.h>

#include <vector>

#include "cli/bench/load_link.h"

namespace plexrl::cli {

class RawEcho {
 public:
  // The process ends with this object, and with the calling thread. Sizes above zero.
  [[nodiscard]] static Result<RawEcho> start(std::size_t connections, const ExchangeSizes& sizes);
  RawEcho(RawEcho&& other) noexcept;
  RawEcho& operator=(RawEcho&&) = delete;
  ~RawEcho();

  // This side of the connections; once.
  [[nodiscard]] std::vector<UniqueFd> take_sockets() { return std::move(sockets_); }

 private:
  RawEcho() = default;

  pid_t pid_ = 0;
  std::vector<UniqueFd> sockets_;
};

}  // namespace plexrl::cli
