// SPDX-License-Identifier: Apache-2.0
#include "api/connection.h"

#include <sys/epoll.h>

namespace plexrl::api {
namespace {

// A hello or a hook call is far smaller; what a peer without a token may make us keep.
constexpr std::uint32_t kFrameBytesBeforeHello = 64U << 10;

// Above so many bytes of answers that the peer has not read, its next requests are not read either:
// many peers together must not fill the memory. Large enough to keep a pipeline of ops busy.
constexpr std::size_t kUnreadBytes = 1U << 20;

wire::Limits limits_before_hello() {
  wire::Limits limits;
  limits.max_payload_bytes = kFrameBytesBeforeHello;
  limits.max_fds = 1;
  limits.max_in_bytes = kFrameBytesBeforeHello;
  limits.max_in_fds = 1;
  return limits;
}

}  // namespace

Connection::Connection(SessionId id, UniqueFd socket, const wire::PeerCredentials& peer,
                       loop::EventLoop& loop, Hooks hooks)
    : id_(id),
      peer_(peer),
      loop_(loop),
      hooks_(std::move(hooks)),
      channel_(std::move(socket), limits_before_hello()) {}

Status Connection::start() {
  PLEXRL_ASSIGN(watch_, loop_.watch_io(channel_.fd(), EPOLLIN,
                                       [this](std::uint32_t events) { on_events(events); }));
  return {};
}

void Connection::hello_due() {
  if (!is_greeted()) on_events(EPOLLIN);
  if (!is_greeted()) close(error(Code::TIMEOUT, "no hello in time"));
}

void Connection::authenticated(TenantId tenant, std::string client, std::uint32_t max_frame_bytes) {
  tenant_ = tenant;
  client_ = std::move(client);
  wire::Limits limits;
  limits.max_payload_bytes = max_frame_bytes;
  limits.max_in_bytes = max_frame_bytes;
  limits.max_fds = 1;
  channel_.set_limits(limits);
}

void Connection::fail(std::uint64_t request_id, const Status& status,
                      std::uint32_t retry_after_ms) {
  reply(request_id, wire::to_failure(status, retry_after_ms));
}

void Connection::send(const wire::MessageT& message, std::vector<UniqueFd> fds) {
  if (closing_ || outstanding_.erase(message.request_id) == 0) return;
  Status status = channel_.send(wire::encode(message), std::move(fds));
  if (status.code() == Code::TOO_LARGE) {
    const auto failure = wire::message(
        message.request_id,
        wire::to_failure(error(Code::TOO_LARGE, "the result is larger than a frame")));
    status = channel_.send(wire::encode(failure));
  }
  // A client that does not read its results is cut off; it may connect again.
  if (!status.ok()) return close(status);
  update_watch();
}

void Connection::close(const Status& why) {
  if (closing_) return;
  closing_ = true;
  watch_.set_events(0);
  loop_.post([ended = hooks_.ended, id = id_, why] { ended(id, why); });
}

void Connection::on_events(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    if (const Status status = channel_.flush(); !status.ok()) return close(status);
    take_frames();
  }
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) {
    const Status status = channel_.receive();
    take_frames();
    if (!status.ok()) return close(status);
  }
  update_watch();
}

bool Connection::clogged() const { return channel_.out_bytes() > kUnreadBytes; }

void Connection::take_frames() {
  while (!closing_ && !clogged()) {
    auto frame = channel_.next();
    if (!frame) return;
    if (const Status status = take_frame(std::move(*frame)); !status.ok()) return close(status);
  }
}

Status Connection::take_frame(wire::Frame frame) {
  PLEXRL_ASSIGN(auto message, wire::decode_message(frame.payload));
  const std::uint64_t id = message.request_id;
  if (id == 0) return error(Code::PROTOCOL, "request_id is 0");
  if (outstanding_.size() >= kMaxOutstanding)
    return error(Code::PROTOCOL, "more than %zu requests without a reply", kMaxOutstanding);
  if (!outstanding_.insert(id).second)
    return error(Code::PROTOCOL, "request_id %llu is outstanding already",
                 static_cast<unsigned long long>(id));
  hooks_.handle(*this, std::move(message), std::move(frame.fds));
  return {};
}

void Connection::update_watch() {
  if (closing_) return;
  std::uint32_t events = 0;
  if (channel_.wants_read() && !clogged()) events |= EPOLLIN;
  if (channel_.wants_write()) events |= EPOLLOUT;
  watch_.set_events(events);
}

}  // namespace plexrl::api
