// SPDX-License-Identifier: Apache-2.0
#include "client/rpc_client.h"

#include <ctime>

#include "wire/blocking.h"
#include "wire/unix_socket.h"

namespace plexrl::client {
namespace {

// Between looks for a service that is starting.
constexpr Duration kLookAgain{50 * kMillisecond.ns};

void pause_for(Duration d) noexcept {
  const timespec t{d.ns / kSecond.ns, d.ns % kSecond.ns};
  ::nanosleep(&t, nullptr);
}

}  // namespace

Result<RpcClient> RpcClient::connect(const ConnectTarget& target, TimePoint deadline) {
  PLEXRL_ASSIGN(UniqueFd socket, wire::connect_unix(target.socket, deadline));
  RpcClient client(std::move(socket));
  PLEXRL_TRY(client.say_hello(target, deadline));
  return client;
}

Result<RpcClient> RpcClient::connect_when_up(const ConnectTarget& target, TimePoint deadline) {
  while (true) {
    Result<RpcClient> client = connect(target, deadline);
    if (client || client.error().code() != Code::UNAVAILABLE) return client;
    if (system_clock().now() + kLookAgain >= deadline) return client;
    pause_for(kLookAgain);
  }
}

Status RpcClient::say_hello(const ConnectTarget& target, TimePoint deadline) {
  wire::HelloT hello;
  hello.protocol = wire::kProtocolVersion;
  hello.token = target.token;
  hello.client = target.client_name;
  PLEXRL_ASSIGN(hello_, call<wire::HelloReplyT>(std::move(hello), deadline));
  if (hello_.protocol != wire::kProtocolVersion)
    return error(Code::PROTOCOL, "the service speaks protocol %u, this library %u: use one release",
                 hello_.protocol, wire::kProtocolVersion);
  return {};
}

Result<wire::MessageT> RpcClient::exchange(const wire::MessageT& request, TimePoint deadline) {
  PLEXRL_TRY(wire::send_until(channel_, wire::encode(request), {}, deadline));
  PLEXRL_ASSIGN(const wire::Frame frame, wire::receive_until(channel_, deadline));
  PLEXRL_ASSIGN(wire::MessageT reply, wire::decode_message(frame.payload));
  if (reply.request_id != request.request_id)
    return error(Code::PROTOCOL, "the service answered request %llu instead of %llu",
                 static_cast<unsigned long long>(reply.request_id),
                 static_cast<unsigned long long>(request.request_id));
  if (const auto* failure = wire::body_as<wire::FailureT>(reply.body))
    return wire::from_failure(*failure);
  return reply;
}

}  // namespace plexrl::client
