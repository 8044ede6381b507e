// SPDX-License-Identifier: Apache-2.0
// Bulk: what the holder of an offer and its taker do.
#include <algorithm>
#include <cinttypes>
#include <vector>

#include "transport/worker.h"

namespace plexrl::transport {
namespace {

// The taker asks for half of what a holder allows: a chunk that has arrived here may still be under
// way there.
constexpr unsigned kAskedChunks = kLinkChunks / 2;

}  // namespace

// ---- holder ----

void Worker::offer(OfferId offer, const OfferRequest& request) {
  offers_[offer] = {request.memory, request.peer, 0, 0};
}

void Worker::withdraw(OfferId offer, Ticket ticket) {
  const auto found = offers_.find(offer);
  if (found == offers_.end()) {
    reports_.ended(ticket, Status());
    return;
  }
  found->second.withdrawn = ticket;
  if (found->second.readers > 0) return;
  offers_.erase(found);
  reports_.ended(ticket, Status());
}

void Worker::reader_gone(OfferId offer) {
  const auto found = offers_.find(offer);
  if (--found->second.readers > 0 || found->second.withdrawn == 0) return;
  const Ticket ticket = found->second.withdrawn;
  offers_.erase(found);
  reports_.ended(ticket, Status());
}

Result<Worker::Offered*> Worker::servable(const Link& link, const Header& header) {
  if (is_old(header)) return old_epoch(header.epoch);
  if (!offers_.contains(OfferId{header.offer})) reports_.catch_up();
  const auto found = offers_.find(OfferId{header.offer});
  if (found == offers_.end() || found->second.withdrawn != 0 ||
      (found->second.peer && found->second.peer != link.peer))
    return error(Code::NOT_FOUND, "offer %" PRIu64 " is not there or withdrawn", header.offer);
  const std::uint64_t bytes = found->second.memory.size();
  if (header.total != bytes)
    return error(Code::INVALID_ARGUMENT, "offer %" PRIu64 " has %" PRIu64 " bytes, not %" PRIu64,
                 header.offer, bytes, header.total);
  if (header.bytes > kMaxChunkBytes || header.offset > bytes ||
      header.bytes > bytes - header.offset)
    return error(Code::INVALID_ARGUMENT, "a chunk outside of the offer");
  return &found->second;
}

void Worker::refuse_get(Link& link, const Header& header, const Status& why) {
  say(link,
      {.type = MessageType::kChunk,
       .code = static_cast<std::int32_t>(why.code()),
       .number = header.number},
      std::string_view(why.text()).substr(0, kMaxRefusalBytes));
}

void Worker::on_get(Link& link, const Header& header) {
  if (link.serving >= kLinkChunks) {
    doom(link, error(Code::PROTOCOL, "asked for more than %u chunks at once", kLinkChunks));
    return;
  }
  const auto offered = servable(link, header);
  if (!offered.has_value()) {
    refuse_get(link, header, offered.error());
    return;
  }
  const Header reply{.type = MessageType::kChunk,
                     .key = link.handshake->peer().key,
                     .epoch = epoch_,
                     .number = header.number,
                     .offset = header.offset,
                     .bytes = header.bytes};
  const auto part = (*offered)->memory.subspan(header.offset, header.bytes);
  const std::uint64_t tag = ++last_serving_;
  ++(*offered)->readers;
  ++link.serving;
  servings_[tag] = {OfferId{header.offer}, link.id};
  const Status status = carrier_.send_bulk(link.id, encode(reply), part, tag);
  if (!status.ok()) doom(link, status);
}

void Worker::sent(LinkId id, std::uint64_t tag, const Status& status) {
  const auto found = servings_.find(tag);
  if (found == servings_.end()) return;
  const OfferId offer = found->second.offer;
  servings_.erase(found);
  const auto link = links_.find(id);
  if (link != links_.end()) {
    --link->second.serving;
    if (!status.ok()) doom(link->second, status);
  }
  reader_gone(offer);
}

// ---- taker ----

void Worker::fetch(FetchOrder order) {
  const Ticket ticket = order.ticket;
  const FetchRequest& request = order.request;
  Link* const link = find(request.peer);
  if (link == nullptr || link->stage != Stage::kOpen) {
    reports_.ended(ticket, error(Code::UNAVAILABLE, "the connection has ended or is not open yet")
                               .within(request.label));
    return;
  }
  Fetch fetch;
  fetch.link = link->id;
  fetch.deadline = options_.clock->now() + request.timeout;
  const std::uint64_t chunk = options_.chunk_bytes;
  fetch.chunks = std::max<std::uint64_t>((request.memory.size() + chunk - 1) / chunk, 1);
  fetch.order = std::move(order);
  fetches_[ticket] = std::move(fetch);
  pump(link->id);
}

// Each fetch of the link gets its turn: the one with the fewest chunks under way is next.
void Worker::pump(LinkId id) {
  Link* const link = find(id);
  while (link != nullptr && !link->doomed && link->asked_chunks < kAskedChunks) {
    Fetch* next = nullptr;
    for (auto& [ticket, fetch] : fetches_) {
      if (fetch.link != id || fetch.ending || fetch.next == fetch.chunks) continue;
      if (next == nullptr || fetch.under_way < next->under_way) next = &fetch;
    }
    if (next == nullptr) return;
    ask(*link, *next);
  }
}

void Worker::ask(Link& link, Fetch& fetch) {
  const FetchRequest& request = fetch.order.request;
  const std::uint64_t offset = fetch.next++ * options_.chunk_bytes;
  const std::size_t bytes =
      std::min<std::uint64_t>(options_.chunk_bytes, request.memory.size() - offset);
  const std::uint64_t number = ++last_chunk_;
  chunks_[number] = {link.id, fetch.order.ticket, request.memory.data() + offset, bytes, false, {}};
  ++fetch.under_way;
  ++link.asked_chunks;
  say(link, {.type = MessageType::kGet,
             .number = number,
             .offer = request.offer.value,
             .total = request.memory.size(),
             .offset = offset,
             .bytes = bytes});
}

std::optional<Worker::Landing> Worker::bulk(LinkId id, std::string_view bytes,
                                            std::size_t payload_bytes) {
  Link* const link = find(id);
  if (link == nullptr) return std::nullopt;
  const auto header = heard(*link, bytes);
  return header ? land(*link, *header, payload_bytes) : std::nullopt;
}

// Where the bytes of a chunk go, when they are what was asked for. The peer's word for a size is
// never used: only what this side has asked for is written.
std::optional<Worker::Landing> Worker::land(Link& link, const Header& header, std::size_t bytes) {
  const auto found = chunks_.find(header.number);
  if (header.type != MessageType::kChunk || found == chunks_.end() ||
      found->second.link != link.id || found->second.landing || header.code != 0 ||
      bytes != found->second.bytes || header.bytes != bytes) {
    doom(link, error(Code::PROTOCOL, "%zu bytes that were not asked for", bytes));
    return std::nullopt;
  }
  Chunk& chunk = found->second;
  const auto fetch = fetches_.find(chunk.fetch);
  if (fetch == fetches_.end() || fetch->second.ending) {
    chunk_done(header.number, Status());  // given up: nobody wants it
    return std::nullopt;
  }
  if (is_old(header)) {
    chunk_done(header.number, old_epoch(header.epoch));
    return std::nullopt;
  }
  chunk.landing = true;
  ++fetch->second.landing;
  return Landing{chunk.at, header.number};
}

void Worker::landed(LinkId id, std::uint64_t tag, const Status& status) {
  const auto found = links_.find(id);
  if (found != links_.end()) {
    found->second.heard = options_.clock->now();
    if (!status.ok()) doom(found->second, status);
  }
  chunk_done(tag, status);
}

// A refusal: chunks themselves come as bulk.
void Worker::on_chunk(Link& link, const Header& header, std::string_view payload) {
  const auto found = chunks_.find(header.number);
  const Code code = code_from_wire(header.code);
  if (found == chunks_.end() || found->second.link != link.id || found->second.landing ||
      code == Code::OK) {
    doom(link, error(Code::PROTOCOL, "a refusal of what was not asked for"));
    return;
  }
  chunk_done(header.number, Status(code, peer_text(payload)).within(link.where));
}

void Worker::chunk_done(std::uint64_t number, const Status& status) {
  const auto found = chunks_.find(number);
  if (found == chunks_.end()) return;
  const Chunk chunk = found->second;
  chunks_.erase(found);
  const auto link = links_.find(chunk.link);
  if (link != links_.end()) --link->second.asked_chunks;
  const auto at = fetches_.find(chunk.fetch);
  if (at != fetches_.end()) {
    Fetch& fetch = at->second;
    --fetch.under_way;
    if (chunk.landing) --fetch.landing;
    if (!status.ok()) {
      finish(chunk.fetch, status);
    } else if (chunk.landing) {
      fetch.order.landed_bytes->fetch_add(chunk.bytes, std::memory_order_relaxed);
      if (++fetch.done == fetch.chunks) finish(chunk.fetch, status);
    }
    report_fetch(chunk.fetch);
  }
  pump(chunk.link);
}

// The first outcome counts.
void Worker::finish(Ticket ticket, const Status& status) {
  Fetch& fetch = fetches_.at(ticket);
  if (fetch.ending) return;
  fetch.ending = status;
  fetch.deadline = options_.clock->now() + options_.peer_timeout;  // for what is landing
  for (auto& [number, chunk] : chunks_) {
    if (chunk.fetch != ticket || chunk.landing) continue;
    chunk.fetch = 0;
    chunk.given_up = options_.clock->now();
    --fetch.under_way;
  }
}

// The owner may use the memory again when the carrier does not write to it any more.
void Worker::report_fetch(Ticket ticket) {
  const auto found = fetches_.find(ticket);
  if (found == fetches_.end() || !found->second.ending || found->second.landing > 0) return;
  const Fetch fetch = std::move(found->second);
  fetches_.erase(found);
  reports_.ended(ticket, fetch.ending->within(fetch.order.request.label));
}

void Worker::cancel(Ticket ticket) {
  if (!fetches_.contains(ticket)) return;
  const LinkId link = fetches_.at(ticket).link;
  finish(ticket, error(Code::CANCELLED, "given up"));
  report_fetch(ticket);
  pump(link);
}

// The carrier has closed the link: it touches no memory of it.
void Worker::drop_bulk_of(LinkId link, const Status& why) {
  std::erase_if(chunks_, [&](const auto& entry) { return entry.second.link == link; });
  std::vector<Ticket> ended;
  for (auto& [ticket, fetch] : fetches_)
    if (fetch.link == link) ended.push_back(ticket);
  for (const Ticket ticket : ended) {
    finish(ticket, why);
    fetches_.at(ticket).landing = 0;
    report_fetch(ticket);
  }
  std::vector<OfferId> read;
  for (const auto& [tag, serving] : servings_)
    if (serving.link == link) read.push_back(serving.offer);
  std::erase_if(servings_, [&](const auto& entry) { return entry.second.link == link; });
  for (const OfferId offer : read) reader_gone(offer);
}

void Worker::check_bulk(TimePoint now) {
  std::vector<Ticket> late;
  for (auto& [ticket, fetch] : fetches_)
    if (now >= fetch.deadline) late.push_back(ticket);
  for (const Ticket ticket : late) {
    Fetch& fetch = fetches_.at(ticket);
    Link* const link = find(fetch.link);
    if (fetch.ending && link != nullptr)
      doom(*link, error(Code::UNAVAILABLE, "bytes that were on their way did not arrive"));
    finish(ticket, error(Code::TIMEOUT, "not here before the deadline"));
    report_fetch(ticket);
  }
  for (auto& [number, chunk] : chunks_) {
    Link* const link = find(chunk.link);
    if (chunk.fetch == 0 && link != nullptr && now - chunk.given_up >= options_.peer_timeout)
      doom(*link, error(Code::UNAVAILABLE, "does not answer"));
  }
}

}  // namespace plexrl::transport
