// SPDX-License-Identifier: Apache-2.0
// RpcClient: a connection to plexrld for one call after the other, with a deadline on each. No
// threads, no reconnect; light enough for a process that is not ours (slurmstepd). One thread.
#pragma once

#include <string>

#include "base/clock.h"
#include "wire/message.h"

namespace plexrl::client {

struct ConnectTarget {
  std::string socket;
  std::string token;        // empty: reading and hook calls only
  std::string client_name;  // for `plexrl ops`
};

class RpcClient {
 public:
  // Connects and says Hello. UNAVAILABLE when nobody listens, AUTH, PROTOCOL (another release).
  [[nodiscard]] static Result<RpcClient> connect(const ConnectTarget& target, TimePoint deadline);
  // The same, but waits for a service that is starting until the deadline.
  [[nodiscard]] static Result<RpcClient> connect_when_up(const ConnectTarget& target,
                                                         TimePoint deadline);

  // One request and its reply; the service's Failure becomes the Status. After TIMEOUT the
  // connection must not be used any more. PROTOCOL when the reply is of another type.
  template <class ReplyT, class RequestT>
  [[nodiscard]] Result<ReplyT> call(RequestT request, TimePoint deadline) {
    PLEXRL_ASSIGN(wire::MessageT reply,
                  exchange(wire::message(++last_id_, std::move(request)), deadline));
    if (ReplyT* body = wire::body_as<ReplyT>(reply.body)) return std::move(*body);
    return error(Code::PROTOCOL, "the service answered with another type of message (%d)",
                 static_cast<int>(reply.body.type));
  }

  [[nodiscard]] const wire::HelloReplyT& hello() const noexcept { return hello_; }
  // For a Session, which goes on with the connection in its own way.
  [[nodiscard]] wire::Channel release_channel() && { return std::move(channel_); }

 private:
  explicit RpcClient(UniqueFd socket) : channel_(std::move(socket)) {}
  [[nodiscard]] Status say_hello(const ConnectTarget& target, TimePoint deadline);
  [[nodiscard]] Result<wire::MessageT> exchange(const wire::MessageT& request, TimePoint deadline);

  wire::Channel channel_;
  wire::HelloReplyT hello_;
  std::uint64_t last_id_ = 0;
};

}  // namespace plexrl::client
