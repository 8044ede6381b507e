// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/engine_link.h"

#include <unistd.h>

#include <utility>

#include "base/log.h"
#include "wire/message.h"
#include "wire/unix_socket.h"

namespace plexrl::worker {
namespace {

Status check_peer(int socket) {
  PLEXRL_ASSIGN(const auto peer, wire::peer_credentials(socket));
  if (peer.uid == ::geteuid()) return {};
  return error(Code::PERMISSION, "connection of uid %u (pid %d) refused: this engine serves uid %u",
               peer.uid, peer.pid, ::geteuid());
}

}  // namespace

pollfd EngineLink::poll_request() const noexcept {
  if (!channel_) return {listener_.get(), POLLIN, 0};
  const bool read = greeted_ && channel_->wants_read();
  const bool write = channel_->wants_write();
  return {channel_->fd(), static_cast<short>((read ? POLLIN : 0) | (write ? POLLOUT : 0)), 0};
}

void EngineLink::handle(short revents) {
  if (revents == 0) return;
  if (!channel_) return accept();
  if ((revents & POLLOUT) != 0)
    if (const Status status = channel_->flush(); !status.ok()) return drop(status);
  if (!greeted_) {
    if ((revents & (POLLHUP | POLLERR)) != 0)
      drop(error(Code::UNAVAILABLE, "the peer went away before the hello"));
    return;
  }
  if ((revents & (POLLIN | POLLHUP | POLLERR)) != 0) read();
}

void EngineLink::accept() {
  auto socket = wire::accept_unix(listener_.get());
  if (!socket) {
    if (socket.error().code() != Code::BUSY)
      PLEXRL_LOG(kWarning, "accept: %s", socket.error().to_string().c_str());
    return;
  }
  if (const Status status = check_peer(socket->get()); !status.ok()) {
    PLEXRL_LOG(kWarning, "%s", status.to_string().c_str());
    return;
  }
  channel_.emplace(std::move(*socket));
  ++connection_;
  greeted_ = false;
}

void EngineLink::greet(wire::EngineHelloT hello, std::vector<UniqueFd> fds) {
  greeted_ = true;
  send(wire::engine_message(0, std::move(hello)), std::move(fds));
}

// The frames that came before an error are served first; a handler may end the connection.
void EngineLink::read() {
  const std::uint64_t now = connection_;
  const Status status = channel_->receive();
  while (channel_ && connection_ == now) {
    auto frame = channel_->next();
    if (!frame) break;
    serve(std::move(*frame));
  }
  if (!status.ok() && channel_ && connection_ == now) drop(status);
}

void EngineLink::serve(wire::Frame frame) {
  auto message = wire::decode_engine_message(frame.payload);
  if (!message) return drop(message.error());
  if (message->request_id == 0) return drop(error(Code::PROTOCOL, "a request without a number"));
  handler_.on_request({connection_, message->request_id}, std::move(message->body),
                      std::move(frame.fds));
}

void EngineLink::reply(const Ticket& ticket, wire::EngineBodyUnion body) {
  if (!channel_ || ticket.connection != connection_ || ticket.request_id == 0) return;
  wire::EngineMessageT message;
  message.request_id = ticket.request_id;
  message.body = std::move(body);
  send(message, {});
}

void EngineLink::send(const wire::EngineMessageT& message, std::vector<UniqueFd> fds) {
  if (!channel_) return;
  if (const Status status = channel_->send(wire::encode(message), std::move(fds)); !status.ok())
    drop(status.within("plexrld does not take its replies"));
}

void EngineLink::drop(const Status& why) {
  PLEXRL_LOG(kInfo, "connection closed: %s", why.to_string().c_str());
  channel_.reset();
  handler_.on_disconnected();
}

}  // namespace plexrl::worker
