// SPDX-License-Identifier: Apache-2.0
#include "transport/threaded_transport.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cinttypes>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "transport/worker.h"

namespace plexrl::transport {
namespace {

Status check(const Options& options) {
  const auto named = [](const std::string& name) {
    return !name.empty() && name.size() <= kMaxNameBytes;
  };
  if (!named(options.identity.cluster) || !named(options.identity.node))
    return error(Code::INVALID_ARGUMENT, "transport: cluster and node need names of 1 to %zu bytes",
                 kMaxNameBytes);
  if (options.authenticator == nullptr || options.clock == nullptr)
    return error(Code::INVALID_ARGUMENT, "transport: needs an authenticator and a clock");
  if (options.chunk_bytes == 0 || options.chunk_bytes > kMaxChunkBytes)
    return error(Code::INVALID_ARGUMENT, "transport: chunks have 1 to %zu bytes", kMaxChunkBytes);
  if (options.queued_messages > kLinkMessages)
    return error(Code::INVALID_ARGUMENT, "transport: at most %u messages are queued for a peer",
                 kLinkMessages);
  if (options.connect_timeout.ns <= 0 || options.keepalive.ns <= 0 || options.peer_timeout.ns <= 0)
    return error(Code::INVALID_ARGUMENT, "transport: times must be above 0");
  return {};
}

class ThreadedTransport final : public Transport, private Reports {
 public:
  ThreadedTransport(std::unique_ptr<Carrier> carrier, Options options, Events events, Post post)
      : options_(std::move(options)),
        events_(std::move(events)),
        post_(std::move(post)),
        carrier_(std::move(carrier)),
        method_(carrier_->method()) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before);  // signals are for the loop's thread
    thread_ = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ThreadedTransport(const ThreadedTransport&) = delete;
  ThreadedTransport& operator=(const ThreadedTransport&) = delete;
  ~ThreadedTransport() override {
    command([this](Worker&) { stopping_ = true; });
    thread_.join();
  }

  Result<std::string> listen(const std::string& address) override {
    return ask<Result<std::string>>([&](Worker&) { return carrier_->listen(address); });
  }

  PeerId connect(const std::string& address, const std::string& node, Done done) override {
    const PeerId peer = next_peer();
    const Ticket ticket = ++last_ticket_;
    dones_[ticket] = std::move(done);
    if (peers_.size() >= options_.peers) {
      const Status full = error(Code::BUSY, "connect to %s: there are %zu peers already",
                                address.c_str(), peers_.size());
      tell([this, ticket, full] { end(ticket, full); });
      return peer;
    }
    peers_[peer];
    command([=](Worker& worker) { worker.connect(peer, address, node, ticket); });
    return peer;
  }

  void close(PeerId peer) override {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    found->second.closing = true;
    command([=](Worker& worker) { worker.close(peer); });
  }

  Status send(PeerId peer, std::string message, Done done) override {
    const auto found = peers_.find(peer);
    if (found == peers_.end() || found->second.closing)
      return error(Code::NOT_FOUND, "there is no connection %" PRIu64, peer.value);
    if (message.size() > kMaxMessageBytes)
      return error(Code::TOO_LARGE, "a message of %zu bytes: at most %zu", message.size(),
                   kMaxMessageBytes);
    if (found->second.messages >= options_.queued_messages)
      return error(Code::BUSY, "the peer has not taken the last %u messages",
                   options_.queued_messages);
    ++found->second.messages;
    const Ticket ticket = ++last_ticket_;
    dones_[ticket] = [this, peer, done = std::move(done)](const Status& status) {
      const auto at = peers_.find(peer);
      if (at != peers_.end()) --at->second.messages;
      done(status);
    };
    command([=, text = std::move(message)](Worker& worker) { worker.send(peer, text, ticket); });
    return {};
  }

  Result<RegionId> add_region(std::span<std::byte> memory) override {
    if (memory.empty()) return error(Code::INVALID_ARGUMENT, "a region of no bytes");
    const RegionId region{++last_region_};
    PLEXRL_TRY(ask<Status>([&](Worker&) { return carrier_->add_region(region.value, memory); }));
    regions_[region] = {memory, 0};
    return region;
  }

  Status remove_region(RegionId region) override {
    const auto found = regions_.find(region);
    if (found == regions_.end())
      return error(Code::NOT_FOUND, "there is no region %" PRIu64, region.value);
    if (found->second.users > 0)
      return error(Code::BUSY, "region %" PRIu64 " is used by %u offers and fetches", region.value,
                   found->second.users);
    regions_.erase(found);
    return ask<Status>([&](Worker&) {
      carrier_->remove_region(region.value);
      return Status();
    });
  }

  Result<OfferId> offer(const OfferRequest& request) override {
    PLEXRL_ASSIGN(const RegionId region, use(request.memory));
    const OfferId offer{++last_offer_};
    offers_[offer] = region;
    command([=](Worker& worker) { worker.offer(offer, request); });
    return offer;
  }

  void withdraw(OfferId offer, Done done) override {
    const Ticket ticket = ++last_ticket_;
    const auto found = offers_.find(offer);
    const RegionId region = found == offers_.end() ? RegionId() : found->second;
    if (found != offers_.end()) offers_.erase(found);
    dones_[ticket] = [this, region, done = std::move(done)](const Status& status) {
      release(region);
      done(status);
    };
    command([=](Worker& worker) { worker.withdraw(offer, ticket); });
  }

  Result<FetchId> fetch(const FetchRequest& request, Done done) override {
    if (!peers_.contains(request.peer))
      return error(Code::NOT_FOUND, "there is no connection %" PRIu64, request.peer.value);
    if (request.timeout.ns <= 0) return error(Code::INVALID_ARGUMENT, "a timeout must be above 0");
    if (fetches_.size() >= options_.queued_fetches)
      return error(Code::BUSY, "%zu fetches are under way already", fetches_.size());
    PLEXRL_ASSIGN(const RegionId region, use(request.memory));
    const Ticket ticket = ++last_ticket_;
    const auto landed = std::make_shared<std::atomic<std::uint64_t>>(0);
    fetches_[FetchId{ticket}] = landed;
    dones_[ticket] = [this, ticket, region, done = std::move(done)](const Status& status) {
      fetches_.erase(FetchId{ticket});
      release(region);
      done(status);
    };
    command([=](Worker& worker) { worker.fetch({request, ticket, landed}); });
    return FetchId{ticket};
  }

  void cancel(FetchId fetch) override {
    if (fetches_.contains(fetch)) command([=](Worker& worker) { worker.cancel(fetch.value); });
  }

  [[nodiscard]] std::uint64_t progress(FetchId fetch) const override {
    const auto found = fetches_.find(fetch);
    return found == fetches_.end() ? 0 : found->second->load(std::memory_order_relaxed);
  }

  void set_epoch(std::uint64_t epoch) override {
    worker_.set_epoch(epoch);
    carrier_->wake();
  }
  [[nodiscard]] const std::string& method() const override { return method_; }

 private:
  using Command = std::function<void(Worker&)>;
  struct Region {
    std::span<std::byte> memory;
    unsigned users = 0;
  };
  struct Peer {
    unsigned messages = 0;  // not taken yet
    bool closing = false;
  };

  // ---- the caller's thread ----

  void command(Command command) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back(std::move(command));
    }
    carrier_->wake();
  }
  template <class Answer, class Call>
  Answer ask(const Call& call) {
    std::promise<Answer> promise;
    command([&](Worker& worker) { promise.set_value(call(worker)); });
    return promise.get_future().get();
  }
  [[nodiscard]] PeerId next_peer() { return PeerId{++last_peer_}; }

  void end(Ticket ticket, const Status& status) {
    const auto found = dones_.find(ticket);
    if (found == dones_.end()) return;
    const Done done = std::move(found->second);
    dones_.erase(found);
    done(status);
  }

  // The region that has all of `memory`; a place without bytes needs none.
  [[nodiscard]] Result<RegionId> use(std::span<const std::byte> memory) {
    if (memory.empty()) return RegionId();
    for (auto& [id, region] : regions_) {
      const std::byte* const first = region.memory.data();
      const std::less_equal<> up_to;
      if (!up_to(first, memory.data()) ||
          !up_to(memory.data() + memory.size(), first + region.memory.size()))
        continue;
      ++region.users;
      return id;
    }
    return error(Code::INVALID_ARGUMENT, "%zu bytes that are not inside of one region",
                 memory.size());
  }
  void release(RegionId region) {
    const auto found = regions_.find(region);
    if (found != regions_.end()) --found->second.users;
  }

  void on_accepted(PeerId peer, const Identity& who) {
    peers_[peer];
    if (events_.accepted) events_.accepted(peer, who);
  }
  void on_message(PeerId peer, std::uint64_t number, std::string text) {
    const auto found = peers_.find(peer);
    if (found == peers_.end() || found->second.closing) return;
    if (events_.message) events_.message(peer, std::move(text));
    command([=](Worker& worker) { worker.taken(peer, number); });
  }
  void on_closed(PeerId peer, const Status& why, bool was_open) {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    const bool told = was_open && !found->second.closing;
    peers_.erase(found);
    if (told && events_.closed) events_.closed(peer, why);
  }

  // ---- the worker's thread ----

  void run() {
    while (!stopping_) {
      catch_up();
      if (!stopping_) worker_.turn();
    }
  }
  void catch_up() override {
    std::deque<Command> commands;
    {
      const std::lock_guard lock(mutex_);
      commands.swap(commands_);
    }
    for (const Command& command : commands) command(worker_);
  }

  void tell(std::function<void()> what) {
    post_([alive = std::weak_ptr<int>(alive_), what = std::move(what)] {
      if (!alive.expired()) what();
    });
  }
  void ended(Ticket ticket, const Status& status) override {
    tell([this, ticket, status] { end(ticket, status); });
  }
  void accepted(PeerId peer, const Identity& who) override {
    tell([this, peer, who] { on_accepted(peer, who); });
  }
  void message(PeerId peer, std::uint64_t number, std::string text) override {
    tell([this, peer, number, text = std::move(text)]() mutable {
      on_message(peer, number, std::move(text));
    });
  }
  void closed(PeerId peer, const Status& why, bool was_open) override {
    tell([this, peer, why, was_open] { on_closed(peer, why, was_open); });
  }

  const Options options_;
  const Events events_;
  const Post post_;
  std::unique_ptr<Carrier> carrier_;
  const std::string method_;
  std::atomic<std::uint64_t> last_peer_ = 0;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);

  std::mutex mutex_;  // guards commands_
  std::deque<Command> commands_;

  // The worker's thread.
  bool stopping_ = false;
  Worker worker_{options_, *carrier_, *this, [this] { return next_peer(); }};

  // The caller's thread.
  Ticket last_ticket_ = 0;
  std::uint64_t last_region_ = 0;
  std::uint64_t last_offer_ = 0;
  std::map<Ticket, Done> dones_;
  std::map<PeerId, Peer> peers_;
  std::map<RegionId, Region> regions_;
  std::map<OfferId, RegionId> offers_;
  std::map<FetchId, std::shared_ptr<std::atomic<std::uint64_t>>> fetches_;

  std::thread thread_;  // last: it uses what is above
};

}  // namespace

Result<std::unique_ptr<Transport>> make_threaded_transport(std::unique_ptr<Carrier> carrier,
                                                           Options options, Events events,
                                                           Transport::Post post) {
  PLEXRL_TRY(check(options));
  return std::unique_ptr<Transport>(std::make_unique<ThreadedTransport>(
      std::move(carrier), std::move(options), std::move(events), std::move(post)));
}

}  // namespace plexrl::transport
