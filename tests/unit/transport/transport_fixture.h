// SPDX-License-Identifier: Apache-2.0
// What tests of the transport share: the caller's loop, a clock that tests advance, credentials,
// nodes over each carrier, and memory with known bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/crc32c.h"
#include "transport/loopback.h"
#include "transport/threaded_transport.h"
#include "transport/ucx_carrier.h"
#include "transport/wire.h"

namespace plexrl::transport {

// The caller's loop: callbacks come from any thread and run in turn().
class TestLoop {
 public:
  Transport::Post post() {
    return [this](std::function<void()> callback) {
      const std::lock_guard lock(mutex_);
      callbacks_.push_back(std::move(callback));
      came_.notify_one();
    };
  }
  bool turn(std::chrono::milliseconds most) {
    std::deque<std::function<void()>> callbacks;
    {
      std::unique_lock lock(mutex_);
      if (!came_.wait_for(lock, most, [this] { return !callbacks_.empty(); })) return false;
      callbacks.swap(callbacks_);
    }
    for (const auto& callback : callbacks) callback();
    return true;
  }
  // False when `done` does not come true: the cap is for tests that fail.
  bool until(const std::function<bool()>& done) {
    const auto cap = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      turn(std::chrono::milliseconds(each ? 5 : 20));
      if (each) each();
      if (std::chrono::steady_clock::now() > cap) return false;
    }
    return true;
  }
  template <class Call>
  Status wait(const Call& call) {
    const auto outcome = std::make_shared<std::optional<Status>>();
    call([outcome](const Status& status) { *outcome = status; });
    return until([&] { return outcome->has_value(); }) ? **outcome
                                                       : error(Code::INTERNAL, "no completion");
  }
  std::function<void()> each;  // with every turn

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> callbacks_;
};

class TestClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override { return {now_.load()}; }
  void advance(Duration by) { now_ += by.ns; }

 private:
  std::atomic<std::int64_t> now_ = 1;
};

// Vouches for a binding with a shared word.
class TestAuthenticator final : public Authenticator {
 public:
  explicit TestAuthenticator(std::string word) : word_(std::move(word)) {}
  Result<std::string> credential(std::string_view binding) override { return made(binding); }
  Status verify(std::string_view credential, std::string_view binding, const Identity&) override {
    return credential == made(binding) ? Status() : error(Code::AUTH, "not made by us");
  }

 private:
  [[nodiscard]] std::string made(std::string_view binding) const {
    const std::string all = word_ + std::string(binding);
    return std::to_string(crc32c(reinterpret_cast<const std::byte*>(all.data()), all.size()));
  }
  std::string word_;
};

// `used` bytes in the middle of guards that nobody may write to.
class TestMemory {
 public:
  static constexpr std::size_t kGuard = 4096;
  explicit TestMemory(std::size_t used) : used_(used), bytes_(used + 2 * kGuard, std::byte{0xa5}) {}
  std::span<std::byte> all() { return bytes_; }
  std::span<std::byte> used() { return all().subspan(kGuard, used_); }
  // Different for each place: a chunk that went to a wrong one is seen. By pages, as tests are
  // compiled without optimisation.
  void fill(std::uint32_t seed) {
    constexpr std::size_t kPage = 4096;
    for (std::size_t at = 0; at < used_; at += kPage) {
      const std::span<std::byte> page = used().subspan(at, std::min(kPage, used_ - at));
      std::memset(page.data(), static_cast<int>(at / kPage * 7 + seed + 1), page.size());
      std::memcpy(page.data(), &at, std::min(sizeof at, page.size()));
    }
  }
  void set(std::uint8_t value) {
    if (used_ > 0) std::memset(used().data(), value, used_);
  }
  [[nodiscard]] bool is_all(std::uint8_t value) {
    return used_ == 0 || (used()[0] == std::byte{value} &&
                          std::memcmp(used().data(), used().data() + 1, used_ - 1) == 0);
  }
  [[nodiscard]] bool guarded() const {
    const std::vector<std::byte> guard(kGuard, std::byte{0xa5});
    return std::memcmp(bytes_.data(), guard.data(), kGuard) == 0 &&
           std::memcmp(bytes_.data() + kGuard + used_, guard.data(), kGuard) == 0;
  }
  bool equals(TestMemory& other) {
    return used_ == other.used_ &&
           (used_ == 0 || std::memcmp(used().data(), other.used().data(), used_) == 0);
  }

 private:
  std::size_t used_;
  std::vector<std::byte> bytes_;
};

// "loopback", "tcp" and "shared": UCX by these transports.
class Carriers {
 public:
  explicit Carriers(std::string kind) : kind_(std::move(kind)) {}
  [[nodiscard]] bool loopback() const { return kind_ == "loopback"; }
  Result<std::unique_ptr<Carrier>> make() {
    if (loopback()) return make_loopback_carrier(net);
    UcxOptions options;
    options.transports = kind_ == "tcp" ? "tcp" : "posix,tcp";
    ::setenv("UCX_TLS", options.transports.c_str(), 1);  // of an earlier test
    return make_ucx_carrier(options);
  }
  std::string listen_address() {
    return loopback() ? "node" + std::to_string(++listeners_) : "127.0.0.1:0";
  }
  std::shared_ptr<LoopbackNet> net = make_loopback_net();

 private:
  std::string kind_;
  int listeners_ = 0;
};

// A transport and what it has said.
struct TestNode {
  std::vector<std::pair<PeerId, Identity>> accepted;
  std::vector<std::string> messages;
  std::vector<std::pair<PeerId, Status>> closed;
  std::unique_ptr<Transport> transport;
  std::string address;

  Events events() {
    return {[this](PeerId peer, const Identity& who) { accepted.emplace_back(peer, who); },
            [this](PeerId, std::string text) { messages.push_back(std::move(text)); },
            [this](PeerId peer, const Status& why) { closed.emplace_back(peer, why); }};
  }
};

inline Options node_options(const std::string& node) {
  Options options;
  options.identity = {"lab", node, 1};
  options.epoch = 5;
  options.authenticator = std::make_shared<TestAuthenticator>("word");
  options.chunk_bytes = std::size_t{1} << 20;
  return options;
}

class TransportTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto carrier = carriers_.make();
    if (!carrier.has_value() && carrier.error().code() == Code::UNSUPPORTED)
      GTEST_SKIP() << carrier.error().to_string();
  }
  void start(TestNode& node, Options options) {
    auto carrier = carriers_.make();
    ASSERT_TRUE(carrier.has_value()) << carrier.error().to_string();
    auto made = make_threaded_transport(std::move(carrier).value(), std::move(options),
                                        node.events(), loop_.post());
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    node.transport = std::move(made).value();
    const auto address = node.transport->listen(carriers_.listen_address());
    ASSERT_TRUE(address.has_value()) << address.error().to_string();
    node.address = *address;
  }
  void start_both() {
    start(holder_, node_options("holder"));
    start(taker_, node_options("taker"));
    ASSERT_TRUE(connect(taker_, holder_).ok());
  }
  // From `from` to `to`; the two ends are here_ and there_.
  Status connect(TestNode& from, TestNode& to, const std::string& expected = "") {
    const std::size_t before = to.accepted.size();
    const Status status = loop_.wait([&](Transport::Done done) {
      here_ = from.transport->connect(to.address, expected, std::move(done));
    });
    if (!status.ok()) return status;
    EXPECT_TRUE(loop_.until([&] { return to.accepted.size() > before; }));
    there_ = to.accepted.back().first;
    return status;
  }
  static RegionId add(TestNode& node, TestMemory& memory) {
    const auto region = node.transport->add_region(memory.all());
    EXPECT_TRUE(region.has_value()) << region.error().to_string();
    return region.value_or(RegionId());
  }
  static OfferId offer(TestNode& node, TestMemory& memory, PeerId peer = {}) {
    const auto offered = node.transport->offer({memory.used(), peer});
    EXPECT_TRUE(offered.has_value()) << offered.error().to_string();
    return offered.value_or(OfferId());
  }
  FetchRequest request(OfferId offer, TestMemory& memory) const {
    return {here_, offer, memory.used(), {60 * kSecond.ns}, "model 7: segment weights"};
  }
  Status fetch(OfferId offer, TestMemory& memory) {
    return loop_.wait([&](Transport::Done done) {
      const auto begun = taker_.transport->fetch(request(offer, memory), done);
      if (!begun.has_value()) done(begun.error());
    });
  }

  // Lives longer than the transports.
  TestMemory& memory(std::size_t bytes) { return memories_.emplace_back(bytes); }

  std::deque<TestMemory> memories_;
  Carriers carriers_{GetParam()};
  TestLoop loop_;
  TestClock clock_;
  TestNode holder_;
  TestNode taker_;
  PeerId here_;   // the holder, at the taker
  PeerId there_;  // the taker, at the holder
};

}  // namespace plexrl::transport
