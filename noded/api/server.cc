// SPDX-License-Identifier: Apache-2.0
#include "api/server.h"

#include <algorithm>

#include "base/log.h"

namespace plexrl::api {
namespace {

// This part of all connections is root's alone: users together must not lock out its hooks.
constexpr std::size_t kRootPart = 8;

}  // namespace

Status Server::start() {
  PLEXRL_ASSIGN(hello_timer_, loop_.make_timer([this] { close_silent(); }));
  return acceptor_.start();
}

bool Server::admit(const wire::PeerCredentials& peer) {
  const std::size_t kept = std::max<std::size_t>(max_connections_ / kRootPart, 1);
  const bool room = peer.uid == 0
                        ? connections_.size() < max_connections_
                        : connections_.size() < max_connections_ - kept &&
                              per_uid_[peer.uid] < std::max<std::size_t>(max_connections_ / 2, 1);
  if (!room) ++counts_.refused;
  return room;
}

void Server::take(UniqueFd socket) {
  const auto peer = wire::peer_credentials(socket.get());
  if (!peer || !admit(*peer)) return;
  const SessionId id{next_session_++};
  Connection::Hooks hooks;
  hooks.handle = [this](Connection& connection, wire::MessageT request, std::vector<UniqueFd> fds) {
    handler_.handle(connection, std::move(request), std::move(fds));
  };
  hooks.ended = [this](SessionId session, const Status& why) { ended(session, why); };
  auto connection =
      std::make_unique<Connection>(id, std::move(socket), *peer, loop_, std::move(hooks));
  if (const Status status = connection->start(); !status.ok()) {
    PLEXRL_LOG(kWarning, "accept: %s", status.to_string().c_str());
    return;
  }
  ++counts_.accepted;
  ++per_uid_[peer->uid];
  connections_.emplace(id, std::move(connection));
  const TimePoint due = system_clock().now() + hello_time_;
  silent_.emplace(id, due);
  if (silent_.size() == 1) hello_timer_.arm(due);
}

// Numbers and times grow together, so the first is due first. One that has said hello meanwhile
// leaves here too.
void Server::close_silent() {
  const TimePoint now = system_clock().now();
  while (!silent_.empty() && silent_.begin()->second <= now) {
    Connection* const connection = find(silent_.begin()->first);
    silent_.erase(silent_.begin());
    if (connection != nullptr) connection->hello_due();
  }
  if (!silent_.empty()) hello_timer_.arm(silent_.begin()->second);
}

void Server::ended(SessionId session, const Status& why) {
  const auto found = connections_.find(session);
  if (found == connections_.end()) return;
  const uid_t uid = found->second->peer().uid;
  if (why.code() == Code::PROTOCOL || why.code() == Code::TOO_LARGE) {
    ++counts_.protocol_errors;
    PLEXRL_LOG(kWarning, "connection of uid %u closed: %s", uid, why.to_string().c_str());
  }
  if (--per_uid_[uid] == 0) per_uid_.erase(uid);
  connections_.erase(found);
  silent_.erase(session);
  handler_.closed(session);
}

void Server::close_tenant(TenantId tenant) {
  for (const auto& [id, connection] : connections_)
    if (connection->tenant() == tenant) connection->close(error(Code::AUTH, "the job has ended"));
}

std::set<TenantId> Server::connected() const {
  std::set<TenantId> tenants;
  for (const auto& [id, connection] : connections_)
    if (connection->tenant()) tenants.insert(connection->tenant());
  return tenants;
}

std::size_t Server::connections_of(TenantId tenant) const {
  return static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [&](const auto& entry) { return entry.second->tenant() == tenant; }));
}

Connection* Server::find(SessionId session) {
  const auto found = connections_.find(session);
  return found == connections_.end() ? nullptr : found->second.get();
}

ServerCounts Server::counts() const {
  ServerCounts counts = counts_;
  counts.connections = connections_.size();
  return counts;
}

}  // namespace plexrl::api
