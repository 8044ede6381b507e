// SPDX-License-Identifier: Apache-2.0
#include "targets.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/check.h"
#include "wire/message.h"

namespace plexrl::fuzz {
namespace {

// A decoded message can be packed again and then means the same.
template <class Decode>
void round_trip(std::span<const std::uint8_t> bytes, Decode decode) {
  auto message = decode(bytes);
  if (!message) {
    PLEXRL_CHECK(message.error().code() == Code::PROTOCOL, "bad bytes are PROTOCOL");
    return;
  }
  if (message->body.value == nullptr) message->body.Reset();
  const auto packed = wire::encode(*message);
  const auto again = decode(std::span<const std::uint8_t>(packed.data(), packed.size()));
  PLEXRL_CHECK(again.has_value() && again->request_id == message->request_id,
               "what was decoded can be encoded and decoded");
}

}  // namespace

void fuzz_frame(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kSocketHolds = 64U << 10;
  bytes = bytes.first(std::min(bytes.size(), kSocketHolds));
  int fds[2];
  PLEXRL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
  UniqueFd peer(fds[0]);
  wire::Channel channel(UniqueFd(fds[1]), {.max_payload_bytes = 1U << 20});
  if (!bytes.empty())
    PLEXRL_CHECK(
        ::send(peer.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "the socket takes a small input");
  peer.reset();
  std::size_t taken = 0;
  for (int round = 0; round < 100 && channel.failure().ok(); ++round) {
    static_cast<void>(channel.receive());
    while (auto frame = channel.next()) taken += wire::kHeaderBytes + frame->payload.size();
  }
  PLEXRL_CHECK(!channel.failure().ok(), "the end of the stream is seen");
  PLEXRL_CHECK(taken <= bytes.size(), "no byte is delivered twice");
}

void fuzz_message(std::span<const std::uint8_t> bytes) {
  round_trip(bytes, [](auto b) { return wire::decode_message(b); });
}

void fuzz_engine_message(std::span<const std::uint8_t> bytes) {
  round_trip(bytes, [](auto b) { return wire::decode_engine_message(b); });
}

}  // namespace plexrl::fuzz
