// SPDX-License-Identifier: Apache-2.0
// Worker: the protocol of a Transport over a Carrier: connections, messages, fetches, deadlines.
// Everything here is for the worker thread; outcomes go to Reports. Times come from the caller.
#pragma once

#include <atomic>
#include <map>
#include <set>

#include "transport/carrier.h"
#include "transport/handshake.h"

namespace plexrl::transport {

// Under which the outcome of a call is reported; never used twice, 0 is none.
using Ticket = std::uint64_t;

class Reports {
 public:
  virtual ~Reports() = default;
  virtual void ended(Ticket ticket, const Status& status) = 0;
  virtual void accepted(PeerId peer, const Identity& who) = 0;
  // Carries out the calls that were made before: a peer may hear of an offer by another way and be
  // quicker than the worker.
  virtual void catch_up() = 0;
  // The owner answers with Worker::taken.
  virtual void message(PeerId peer, std::uint64_t number, std::string text) = 0;
  // After its tickets have ended. `was_open`: it had been accepted, or its connect had succeeded.
  virtual void closed(PeerId peer, const Status& why, bool was_open) = 0;
};

// Messages of one side that the other has not taken.
inline constexpr unsigned kLinkMessages = 256;

class Worker final : public Carrier::Sink {
 public:
  // A fetch as its caller began it.
  struct FetchOrder {
    FetchRequest request;
    Ticket ticket = 0;
    std::shared_ptr<std::atomic<std::uint64_t>> landed_bytes;
  };

  // All outlive it. `next_peer` gives numbers for peers that connect.
  Worker(const Options& options, Carrier& carrier, Reports& reports,
         std::function<PeerId()> next_peer);

  void connect(PeerId peer, const std::string& address, const std::string& node, Ticket ticket);
  void close(PeerId peer);
  void send(PeerId peer, std::string message, Ticket ticket);
  void taken(PeerId peer, std::uint64_t number);
  void offer(OfferId offer, const OfferRequest& request);
  void withdraw(OfferId offer, Ticket ticket);
  void fetch(FetchOrder order);
  void cancel(Ticket fetch);
  void set_epoch(std::uint64_t epoch);  // any thread

  // Does what is due, waits in the carrier for what comes next, then ends what has failed.
  void turn();

 private:
  enum class Stage : std::uint8_t { kConnecting, kGreeting, kProving, kOpen };
  struct Unacknowledged {
    TimePoint at;
    Ticket ticket = 0;
  };
  struct Link {
    PeerId peer;
    LinkId id;
    std::string where;  // for people
    Stage stage = Stage::kConnecting;
    bool initiator = false;
    Ticket connecting = 0;
    std::unique_ptr<Handshake> handshake;
    TimePoint since;                 // its first moment
    TimePoint heard;                 // the last message
    std::optional<TimePoint> asked;  // a kPing without a message since
    std::optional<Status> doomed;    // to be closed after the turn
    std::uint64_t last_sent = 0;
    std::map<std::uint64_t, Unacknowledged> unacknowledged;
    std::uint64_t next_in = 1;
    std::map<std::uint64_t, std::optional<std::string>> early;  // none: refused already
    std::set<std::uint64_t> handed;                             // to the owner, not taken yet
    unsigned asked_chunks = 0;                                  // as taker
    unsigned serving = 0;                                       // as holder
  };
  struct Offered {
    std::span<const std::byte> memory;
    PeerId peer;
    unsigned readers = 0;
    Ticket withdrawn = 0;
  };
  struct Serving {
    OfferId offer;
    LinkId link;
  };
  struct Fetch {
    FetchOrder order;
    LinkId link;
    TimePoint deadline;
    std::uint64_t chunks = 0;  // all of them; one for no bytes
    std::uint64_t next = 0;    // the first that was not asked for
    std::uint64_t done = 0;
    unsigned under_way = 0;
    unsigned landing = 0;          // of those under way: the carrier may write to the memory
    std::optional<Status> ending;  // reported once nothing is landing
  };
  struct Chunk {
    LinkId link;
    Ticket fetch = 0;  // 0: given up
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    bool landing = false;
    TimePoint given_up;
  };

  // Carrier::Sink
  void accepted(LinkId link) override;
  void connected(LinkId link) override;
  void frame(LinkId link, std::string_view bytes) override;
  void message(LinkId link, std::string_view header, std::string_view payload) override;
  std::optional<Landing> bulk(LinkId link, std::string_view header, std::size_t bytes) override;
  void landed(LinkId link, std::uint64_t tag, const Status& status) override;
  void sent(LinkId link, std::uint64_t tag, const Status& status) override;
  void broken(LinkId link, const Status& why) override;

  // worker.cc: links
  [[nodiscard]] Link* find(LinkId link);  // not a doomed one
  [[nodiscard]] Link* find(PeerId peer);
  Link& add_link(LinkId id, PeerId peer, std::string where);
  void begin_handshake(Link& link, const std::string& expected_node);
  [[nodiscard]] Status admit(const Hello& hello);
  void refuse(Link& link, const Status& why);
  void opened(Link& link);
  static void doom(Link& link, Status why);
  void reap();
  void end_link(Link& link, const Status& why);
  void check_times(TimePoint now);
  void check_link(Link& link, TimePoint now);
  [[nodiscard]] Duration until_next(TimePoint now) const;
  void say(Link& link, Header header, std::string_view payload = {});

  // worker_messages.cc: what arrives
  [[nodiscard]] std::optional<Header> heard(Link& link, std::string_view header);
  [[nodiscard]] bool is_old(const Header& header) const { return header.epoch < epoch_; }
  [[nodiscard]] Status old_epoch(std::uint64_t epoch) const;
  void on_text(Link& link, const Header& header, std::string_view payload);
  void on_taken(Link& link, const Header& header, std::string_view payload);
  void deliver(Link& link);

  // worker_bulk.cc
  void on_get(Link& link, const Header& header);
  [[nodiscard]] Result<Offered*> servable(const Link& link, const Header& header);
  void refuse_get(Link& link, const Header& header, const Status& why);
  void on_chunk(Link& link, const Header& header, std::string_view payload);
  [[nodiscard]] std::optional<Landing> land(Link& link, const Header& header, std::size_t bytes);
  void chunk_done(std::uint64_t number, const Status& status);
  void finish(Ticket fetch, const Status& status);
  void report_fetch(Ticket fetch);
  void pump(LinkId link);
  void ask(Link& link, Fetch& fetch);
  void drop_bulk_of(LinkId link, const Status& why);
  void reader_gone(OfferId offer);
  void check_bulk(TimePoint now);

  const Options& options_;
  Carrier& carrier_;
  Reports& reports_;
  std::function<PeerId()> next_peer_;
  std::atomic<std::uint64_t> epoch_;
  std::map<LinkId, Link> links_;
  std::map<PeerId, LinkId> by_peer_;
  std::map<std::string, std::uint64_t> incarnations_;  // the latest of each node
  std::map<OfferId, Offered> offers_;
  std::map<std::uint64_t, Serving> servings_;
  std::uint64_t last_serving_ = 0;
  std::map<Ticket, Fetch> fetches_;
  std::map<std::uint64_t, Chunk> chunks_;
  std::uint64_t last_chunk_ = 0;
};

// "a.bc": the end of a text from a peer, cut and without control characters.
[[nodiscard]] std::string peer_text(std::string_view text);

}  // namespace plexrl::transport
