// SPDX-License-Identifier: Apache-2.0
// Links: from the handshake to the end.
#include "transport/worker.h"

#include <sys/random.h>

#include <algorithm>
#include <cinttypes>

#include "base/check.h"

namespace plexrl::transport {
namespace {

constexpr std::size_t kMostNodes = 4096;  // of a cluster, remembered with their incarnation

template <class Value>
Value random_value() {
  Value value{};
  PLEXRL_CHECK(::getrandom(&value, sizeof value, 0) == ssize_t{sizeof value}, "getrandom");
  return value;
}

double seconds(Duration duration) { return static_cast<double>(duration.ns) / 1e9; }

}  // namespace

Worker::Worker(const Options& options, Carrier& carrier, Reports& reports,
               std::function<PeerId()> next_peer)
    : options_(options),
      carrier_(carrier),
      reports_(reports),
      next_peer_(std::move(next_peer)),
      epoch_(options.epoch) {}

Worker::Link* Worker::find(LinkId link) {
  const auto found = links_.find(link);
  return found == links_.end() || found->second.doomed ? nullptr : &found->second;
}

Worker::Link* Worker::find(PeerId peer) {
  const auto found = by_peer_.find(peer);
  return found == by_peer_.end() ? nullptr : find(found->second);
}

Worker::Link& Worker::add_link(LinkId id, PeerId peer, std::string where) {
  Link& link = links_[id];
  link.id = id;
  link.peer = peer;
  link.where = std::move(where);
  link.since = options_.clock->now();
  by_peer_[peer] = id;
  return link;
}

void Worker::begin_handshake(Link& link, const std::string& expected_node) {
  Handshake::Setup setup;
  setup.identity = options_.identity;
  setup.epoch = epoch_;
  setup.key = random_value<std::uint64_t>();
  setup.nonce = random_value<Nonce>();
  setup.initiator = link.initiator;
  setup.expected_node = expected_node;
  setup.authenticator = options_.authenticator.get();
  setup.address = [this, id = link.id] { return carrier_.local_address(id); };
  setup.admit = [this](const Hello& hello) { return admit(hello); };
  link.handshake = std::make_unique<Handshake>(std::move(setup));
}

void Worker::connect(PeerId peer, const std::string& address, const std::string& node,
                     Ticket ticket) {
  const std::string where = node.empty() ? address : node + " (" + address + ")";
  const auto id = carrier_.connect(address);
  if (!id.has_value()) {
    const Status why = id.error().within("connect to " + where);
    reports_.ended(ticket, why);
    reports_.closed(peer, why, false);
    return;
  }
  Link& link = add_link(*id, peer, where);
  link.initiator = true;
  link.connecting = ticket;
  begin_handshake(link, node);
}

void Worker::accepted(LinkId id) {
  if (links_.size() >= options_.peers) {
    carrier_.close(id);
    return;
  }
  Link& link = add_link(id, next_peer_(), "a peer");
  begin_handshake(link, "");
  connected(id);
}

void Worker::connected(LinkId id) {
  Link* const link = find(id);
  if (link == nullptr) return;
  link->stage = Stage::kGreeting;
  const Status sent = carrier_.send_frame(id, link->handshake->greeting());
  if (!sent.ok()) doom(*link, sent);
}

// An older incarnation of a node that this one has met speaks for a past that is over; a newer one
// ends what is left of it.
Status Worker::admit(const Hello& hello) {
  const Identity& who = hello.identity;
  if (hello.epoch < epoch_) return old_epoch(hello.epoch);
  const auto known = incarnations_.find(who.node);
  if (known == incarnations_.end()) {
    if (incarnations_.size() >= kMostNodes)
      return error(Code::BUSY, "more than %zu nodes have connected", kMostNodes);
    incarnations_[who.node] = who.incarnation;
    return {};
  }
  if (who.incarnation < known->second)
    return error(Code::UNAVAILABLE, "incarnation %" PRIu64 " of node %s is over, it is %" PRIu64,
                 who.incarnation, who.node.c_str(), known->second);
  if (who.incarnation == known->second) return {};
  known->second = who.incarnation;
  for (auto& [id, link] : links_)
    if (link.stage >= Stage::kProving && link.handshake->peer().identity.node == who.node)
      doom(link, error(Code::UNAVAILABLE, "node %s has started again", who.node.c_str()));
  return {};
}

void Worker::refuse(Link& link, const Status& why) {
  // The peer is told what it may know; a frame that does not leave changes nothing.
  if (!link.handshake->refused())
    static_cast<void>(carrier_.send_frame(link.id, encode(Refusal{why.code(), why.text()})));
  doom(link, why);
}

void Worker::frame(LinkId id, std::string_view bytes) {
  Link* const link = find(id);
  if (link == nullptr) return;
  if (link->stage != Stage::kGreeting) {
    doom(*link, error(Code::PROTOCOL, "a frame after the handshake"));
    return;
  }
  auto answer = link->handshake->take(bytes);
  if (!answer.has_value()) {
    refuse(*link, answer.error());
    return;
  }
  Status status;
  if (link->handshake->complete()) status = carrier_.open(id, link->handshake->peer().address);
  if (status.ok() && *answer) status = carrier_.send_frame(id, **answer);
  if (!status.ok()) {
    doom(*link, status);
    return;
  }
  if (!link->handshake->complete()) return;
  link->stage = Stage::kProving;
  link->where = "node " + link->handshake->peer().identity.node;
  link->heard = options_.clock->now();
  // The one that connected speaks first: only then is the other known to be ready for messages.
  if (link->initiator) say(*link, {.type = MessageType::kPing});
}

void Worker::opened(Link& link) {
  link.stage = Stage::kOpen;
  if (link.initiator)
    reports_.ended(std::exchange(link.connecting, 0), Status());
  else
    reports_.accepted(link.peer, link.handshake->peer().identity);
}

void Worker::say(Link& link, Header header, std::string_view payload) {
  header.key = link.handshake->peer().key;
  header.epoch = epoch_;
  const Status status = carrier_.send(link.id, encode(header), payload);
  if (!status.ok()) doom(link, status);
}

void Worker::close(PeerId peer) {
  Link* const link = find(peer);
  if (link != nullptr) doom(*link, error(Code::CANCELLED, "the connection was closed here"));
}

void Worker::set_epoch(std::uint64_t epoch) {
  std::uint64_t now = epoch_;
  while (now < epoch && !epoch_.compare_exchange_weak(now, epoch)) {
  }
}

void Worker::broken(LinkId id, const Status& why) {
  Link* const link = find(id);
  if (link != nullptr) doom(*link, why);
}

void Worker::doom(Link& link, Status why) {
  if (!link.doomed) link.doomed = why.within(link.where);
}

void Worker::reap() {
  for (auto at = links_.begin(); at != links_.end();) {
    const auto next = std::next(at);
    if (at->second.doomed) {
      carrier_.close(at->first);
      end_link(at->second, *at->second.doomed);
      by_peer_.erase(at->second.peer);
      links_.erase(at);
    }
    at = next;
  }
}

void Worker::end_link(Link& link, const Status& why) {
  drop_bulk_of(link.id, why);
  for (const auto& [number, sent] : link.unacknowledged) reports_.ended(sent.ticket, why);
  if (link.connecting != 0) reports_.ended(link.connecting, why);
  reports_.closed(link.peer, why, link.stage == Stage::kOpen);
}

void Worker::check_link(Link& link, TimePoint now) {
  if (link.stage != Stage::kOpen) {
    if (now - link.since >= options_.connect_timeout)
      doom(link, error(Code::TIMEOUT, "not connected after %.1f s", seconds(now - link.since)));
    return;
  }
  const auto late = [&](TimePoint since) { return now - since >= options_.peer_timeout; };
  if (link.asked && late(*link.asked)) {
    doom(link, error(Code::UNAVAILABLE, "nothing heard for %.1f s", seconds(now - link.heard)));
  } else if (!link.unacknowledged.empty() && late(link.unacknowledged.begin()->second.at)) {
    doom(link, error(Code::UNAVAILABLE, "a message was not taken within %.1f s",
                     seconds(options_.peer_timeout)));
  } else if (!link.asked && now - link.heard >= options_.keepalive) {
    link.asked = now;
    say(link, {.type = MessageType::kPing});
  }
}

void Worker::check_times(TimePoint now) {
  for (auto& [id, link] : links_)
    if (!link.doomed) check_link(link, now);
  check_bulk(now);
}

Duration Worker::until_next(TimePoint now) const {
  if (links_.empty()) return {-1};
  std::int64_t first = (now + options_.peer_timeout).ns;
  const auto at_most = [&](TimePoint at) { first = std::min(first, at.ns); };
  for (const auto& [id, link] : links_) {
    if (link.doomed) return {0};
    if (link.stage != Stage::kOpen)
      at_most(link.since + options_.connect_timeout);
    else if (link.asked)
      at_most(*link.asked + options_.peer_timeout);
    else
      at_most(link.heard + options_.keepalive);
    if (!link.unacknowledged.empty())
      at_most(link.unacknowledged.begin()->second.at + options_.peer_timeout);
  }
  for (const auto& [ticket, fetch] : fetches_) at_most(fetch.deadline);
  return {std::max<std::int64_t>(first - now.ns, 0)};
}

void Worker::turn() {
  reap();
  carrier_.turn(*this, until_next(options_.clock->now()));
  // What has come meanwhile counts before the time does: this process may have been stopped.
  check_times(options_.clock->now());
  reap();
}

}  // namespace plexrl::transport
