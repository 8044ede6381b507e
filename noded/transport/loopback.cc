// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <variant>
#include <vector>

#include "transport/threaded_transport.h"

namespace plexrl::transport {
namespace {

// What happens at one end.
struct Accepted {};
struct Connected {};
struct FrameCame {
  std::string bytes;
};
struct MessageCame {
  std::string header;
  std::vector<std::byte> payload;
  bool bulk = false;
};
struct Sent {
  std::uint64_t tag = 0;
};
struct Broken {
  Status why;
};
struct Event {
  LinkId link;
  std::variant<Accepted, Connected, FrameCame, MessageCame, Sent, Broken> what;
};

struct Inbox {
  std::deque<Event> events;
  std::condition_variable came;
  bool woken = false;
};

class Net final : public LoopbackNet {
 public:
  void set_fault(Fault fault) override {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  void release() override {
    const std::lock_guard lock(mutex_);
    for (auto& [from, message] : held_) pass(from, std::move(message));
    held_.clear();
  }
  void cut() override {
    const std::lock_guard lock(mutex_);
    for (auto& [link, end] : ends_) break_end(link, "the link was cut");
  }

  Status listen(const std::string& address, Inbox* inbox) {
    const std::lock_guard lock(mutex_);
    if (!listeners_.try_emplace(address, inbox).second)
      return error(Code::IO, "listen on %s: the address is in use", address.c_str());
    return {};
  }
  Result<LinkId> connect(const std::string& address, Inbox* inbox) {
    const std::lock_guard lock(mutex_);
    const auto found = listeners_.find(address);
    if (found == listeners_.end())
      return error(Code::UNAVAILABLE, "nobody listens on %s", address.c_str());
    const LinkId here{++last_link_};
    const LinkId there{++last_link_};
    ends_[here] = {inbox, there, false};
    ends_[there] = {found->second, here, false};
    put(there, Accepted{});
    put(here, Connected{});
    return here;
  }
  void send(LinkId from, MessageCame message) {
    const std::lock_guard lock(mutex_);
    const Fate fate = fault_ ? fault_(message.header, message.payload.size()) : Fate::kPass;
    if (fate == Fate::kPass) pass(from, std::move(message));
    if (fate == Fate::kHold) held_.emplace_back(from, std::move(message));
    if (fate != Fate::kCut) return;
    break_other(from, "the link was cut");
    break_end(from, "the link was cut");
  }
  void send_frame(LinkId from, std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    const auto end = ends_.find(from);
    if (end != ends_.end()) put(end->second.other, FrameCame{std::string(bytes)});
  }
  void sent(LinkId link, std::uint64_t tag) {
    const std::lock_guard lock(mutex_);
    put(link, Sent{tag});
  }
  void close(LinkId link) {
    const std::lock_guard lock(mutex_);
    break_other(link, "the peer has closed the connection");
    ends_.erase(link);
  }
  void leave(Inbox* inbox) {
    const std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [&](const auto& entry) { return entry.second == inbox; });
    for (auto end = ends_.begin(); end != ends_.end();) {
      const auto next = std::next(end);
      if (end->second.inbox == inbox) {
        break_other(end->first, "the peer has closed the connection");
        ends_.erase(end);
      }
      end = next;
    }
  }

  // What came, or nothing after the time or a wake.
  std::deque<Event> take(Inbox& inbox, Duration timeout) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return inbox.woken || !inbox.events.empty(); };
    if (timeout.ns < 0)
      inbox.came.wait(lock, there);
    else
      inbox.came.wait_for(lock, std::chrono::nanoseconds(timeout.ns), there);
    inbox.woken = false;
    return std::exchange(inbox.events, {});
  }
  void wake(Inbox& inbox) {
    const std::lock_guard lock(mutex_);
    inbox.woken = true;
    inbox.came.notify_one();
  }
  bool is_open(LinkId link) {
    const std::lock_guard lock(mutex_);
    return ends_.contains(link);
  }

 private:
  struct End {
    Inbox* inbox = nullptr;
    LinkId other;
    bool broken = false;
  };
  template <class What>
  void put(LinkId link, What what) {
    const auto end = ends_.find(link);
    if (end == ends_.end() || end->second.broken) return;
    if (std::is_same_v<What, Broken>) end->second.broken = true;
    end->second.inbox->events.push_back({link, std::move(what)});
    end->second.inbox->came.notify_one();
  }
  void pass(LinkId from, MessageCame message) {
    const auto end = ends_.find(from);
    if (end != ends_.end()) put(end->second.other, std::move(message));
  }
  void break_end(LinkId link, const char* why) {
    put(link, Broken{error(Code::UNAVAILABLE, "%s", why)});
  }
  void break_other(LinkId link, const char* why) {
    const auto end = ends_.find(link);
    if (end != ends_.end()) break_end(end->second.other, why);
  }

  std::mutex mutex_;  // guards what follows, and the inboxes
  Fault fault_;
  std::uint64_t last_link_ = 0;
  std::map<std::string, Inbox*> listeners_;
  std::map<LinkId, End> ends_;
  std::vector<std::pair<LinkId, MessageCame>> held_;
};

class LoopbackCarrier final : public Carrier {
 public:
  explicit LoopbackCarrier(std::shared_ptr<LoopbackNet> net)
      : net_(std::static_pointer_cast<Net>(std::move(net))) {}
  LoopbackCarrier(const LoopbackCarrier&) = delete;
  LoopbackCarrier& operator=(const LoopbackCarrier&) = delete;
  ~LoopbackCarrier() override { net_->leave(&inbox_); }

  Result<std::string> listen(const std::string& address) override {
    PLEXRL_TRY(net_->listen(address, &inbox_));
    return address;
  }
  Result<LinkId> connect(const std::string& address) override {
    return net_->connect(address, &inbox_);
  }
  Status send_frame(LinkId link, std::string_view bytes) override {
    net_->send_frame(link, bytes);
    return {};
  }
  Result<std::string> local_address(LinkId) override { return std::string(); }
  Status open(LinkId, std::string_view) override { return {}; }
  Status send(LinkId link, std::string_view header, std::string_view payload) override {
    const auto* const bytes = reinterpret_cast<const std::byte*>(payload.data());
    net_->send(link, {std::string(header), {bytes, bytes + payload.size()}, false});
    return {};
  }
  Status send_bulk(LinkId link, std::string_view header, std::span<const std::byte> payload,
                   std::uint64_t tag) override {
    net_->send(link, {std::string(header), {payload.begin(), payload.end()}, true});
    net_->sent(link, tag);
    return {};
  }
  void close(LinkId link) override { net_->close(link); }
  Status add_region(std::uint64_t, std::span<std::byte>) override { return {}; }
  void remove_region(std::uint64_t) override {}
  void turn(Sink& sink, Duration timeout) override {
    for (const Event& event : net_->take(inbox_, timeout))
      if (net_->is_open(event.link))
        std::visit([&](const auto& what) { tell(sink, event.link, what); }, event.what);
  }
  void wake() override { net_->wake(inbox_); }
  [[nodiscard]] const std::string& method() const override { return method_; }

 private:
  static void tell(Sink& sink, LinkId link, const Accepted&) { sink.accepted(link); }
  static void tell(Sink& sink, LinkId link, const Connected&) { sink.connected(link); }
  static void tell(Sink& sink, LinkId link, const FrameCame& it) { sink.frame(link, it.bytes); }
  static void tell(Sink& sink, LinkId link, const Sent& it) { sink.sent(link, it.tag, Status()); }
  static void tell(Sink& sink, LinkId link, const Broken& it) { sink.broken(link, it.why); }
  static void tell(Sink& sink, LinkId link, const MessageCame& it) {
    if (!it.bulk) {
      const auto* const text = reinterpret_cast<const char*>(it.payload.data());
      sink.message(link, it.header, {text, it.payload.size()});
    } else if (const auto landing = sink.bulk(link, it.header, it.payload.size())) {
      if (!it.payload.empty()) std::memcpy(landing->at, it.payload.data(), it.payload.size());
      sink.landed(link, landing->tag, Status());
    }
  }

  const std::shared_ptr<Net> net_;
  Inbox inbox_;
  const std::string method_ = "loopback";
};

}  // namespace

std::shared_ptr<LoopbackNet> make_loopback_net() { return std::make_shared<Net>(); }

std::unique_ptr<Carrier> make_loopback_carrier(std::shared_ptr<LoopbackNet> net) {
  return std::make_unique<LoopbackCarrier>(std::move(net));
}

Result<std::unique_ptr<Transport>> make_loopback_transport(std::shared_ptr<LoopbackNet> net,
                                                           Options options, Events events,
                                                           Transport::Post post) {
  return make_threaded_transport(make_loopback_carrier(std::move(net)), std::move(options),
                                 std::move(events), std::move(post));
}

}  // namespace plexrl::transport
