// SPDX-License-Identifier: Apache-2.0
// Messages: what arrives, and the small ones that owners send each other.
#include <algorithm>
#include <cinttypes>

#include "transport/worker.h"

namespace plexrl::transport {

std::string peer_text(std::string_view text) {
  std::string cut(text.substr(0, kMaxRefusalBytes));
  std::replace_if(
      cut.begin(), cut.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return cut;
}

Status Worker::old_epoch(std::uint64_t epoch) const {
  return error(Code::UNAVAILABLE, "epoch %" PRIu64 " is over, it is %" PRIu64, epoch,
               epoch_.load());
}

// The header, when it is one of this link; otherwise the link is doomed.
std::optional<Header> Worker::heard(Link& link, std::string_view bytes) {
  const auto header = decode_header(bytes);
  if (!header || link.stage < Stage::kProving || header->key != link.handshake->key()) {
    doom(link, error(Code::PROTOCOL, "a message that is not of this connection"));
    return std::nullopt;
  }
  link.heard = options_.clock->now();
  link.asked.reset();
  if (link.stage == Stage::kProving) opened(link);
  return header;
}

void Worker::message(LinkId id, std::string_view bytes, std::string_view payload) {
  Link* const link = find(id);
  if (link == nullptr) return;
  const auto header = heard(*link, bytes);
  if (!header) return;
  switch (header->type) {
    case MessageType::kText:
      return on_text(*link, *header, payload);
    case MessageType::kTaken:
      return on_taken(*link, *header, payload);
    case MessageType::kGet:
      return on_get(*link, *header);
    case MessageType::kChunk:
      return on_chunk(*link, *header, payload);
    case MessageType::kPing:
      return say(*link, {.type = MessageType::kPong});
    case MessageType::kPong:
      return;
  }
}

void Worker::send(PeerId peer, std::string message, Ticket ticket) {
  Link* const link = find(peer);
  if (link == nullptr || link->stage != Stage::kOpen) {
    reports_.ended(ticket, error(Code::UNAVAILABLE, "the connection has ended or is not open yet"));
    return;
  }
  const std::uint64_t number = ++link->last_sent;
  link->unacknowledged[number] = {options_.clock->now(), ticket};
  say(*link, {.type = MessageType::kText, .number = number}, message);
}

void Worker::on_text(Link& link, const Header& header, std::string_view payload) {
  const bool in_window = header.number >= link.next_in &&
                         header.number - link.next_in < kLinkMessages &&
                         link.early.size() + link.handed.size() < kLinkMessages;
  if (payload.size() > kMaxMessageBytes || !in_window || link.early.contains(header.number)) {
    doom(link, error(Code::PROTOCOL, "message %" PRIu64 " of %zu bytes is more than was allowed",
                     header.number, payload.size()));
    return;
  }
  auto& entry = link.early[header.number];
  if (is_old(header)) {
    const Status why = old_epoch(header.epoch);
    say(link,
        {.type = MessageType::kTaken,
         .code = static_cast<std::int32_t>(why.code()),
         .number = header.number},
        why.text());
  } else {
    entry = std::string(payload);
  }
  deliver(link);
}

void Worker::deliver(Link& link) {
  for (auto first = link.early.find(link.next_in); first != link.early.end();
       first = link.early.find(link.next_in)) {
    const std::uint64_t number = link.next_in++;
    if (first->second) {
      link.handed.insert(number);
      reports_.message(link.peer, number, std::move(*first->second));
    }
    link.early.erase(first);
  }
}

void Worker::taken(PeerId peer, std::uint64_t number) {
  Link* const link = find(peer);
  if (link == nullptr || link->handed.erase(number) == 0) return;
  say(*link, {.type = MessageType::kTaken, .number = number});
}

void Worker::on_taken(Link& link, const Header& header, std::string_view payload) {
  const auto sent = link.unacknowledged.find(header.number);
  if (sent == link.unacknowledged.end()) {
    doom(link,
         error(Code::PROTOCOL, "took message %" PRIu64 ", which was not sent", header.number));
    return;
  }
  const Code code = code_from_wire(header.code);
  const Ticket ticket = sent->second.ticket;
  link.unacknowledged.erase(sent);
  reports_.ended(ticket,
                 code == Code::OK ? Status() : Status(code, peer_text(payload)).within(link.where));
}

}  // namespace plexrl::transport
