// SPDX-License-Identifier: Apache-2.0
// One suite for every Transport: loopback, UCX over TCP, UCX with shared memory.
#include "unit/transport/transport_fixture.h"

namespace plexrl::transport {
namespace {

constexpr std::size_t kMib = std::size_t{1} << 20;

class TransportConformance : public TransportTest {};

TEST_P(TransportConformance, BothEndsKnowEachOther) {
  start_both();
  ASSERT_EQ(holder_.accepted.size(), 1u);
  EXPECT_EQ(holder_.accepted[0].second.node, "taker");
  EXPECT_EQ(holder_.accepted[0].second.cluster, "lab");
  EXPECT_EQ(holder_.accepted[0].second.incarnation, 1u);
  EXPECT_TRUE(connect(holder_, taker_, "taker").ok()) << "a second one, the other way round";
}

TEST_P(TransportConformance, WhoIsNotOfUsIsRefusedWithAReason) {
  start(holder_, node_options("holder"));
  const auto refused = [&](const char* what, Code code, const char* reason, Options options,
                           const std::string& expected = "") {
    SCOPED_TRACE(what);
    TestNode stranger;
    start(stranger, std::move(options));
    const Status status = connect(stranger, holder_, expected);
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.text().find(reason), std::string::npos) << status.to_string();
    EXPECT_TRUE(stranger.closed.empty()) << "it was never open";
  };
  Options options = node_options("stranger");
  options.identity.cluster = "other";
  refused("cluster", Code::PERMISSION, "of cluster other", options);
  options = node_options("stranger");
  options.authenticator = std::make_shared<TestAuthenticator>("guess");
  refused("credential", Code::AUTH, "not made by us", options);
  options = node_options("stranger");
  options.epoch = 4;
  refused("epoch", Code::UNAVAILABLE, "epoch 4 is over, it is 5", options);
  refused("name", Code::AUTH, "node holder is there, not gpu9", node_options("stranger"), "gpu9");
  EXPECT_TRUE(holder_.accepted.empty());
}

TEST_P(TransportConformance, AnOldIncarnationIsRefusedAndANewOneEndsTheOld) {
  start_both();
  TestNode again;
  Options options = node_options("taker");
  options.identity.incarnation = 2;
  start(again, options);
  ASSERT_TRUE(connect(again, holder_).ok());
  ASSERT_TRUE(loop_.until([&] { return !holder_.closed.empty() && !taker_.closed.empty(); }));
  EXPECT_NE(holder_.closed[0].second.text().find("node taker has started again"), std::string::npos)
      << holder_.closed[0].second.to_string();
  const Status status = connect(taker_, holder_);
  EXPECT_EQ(status.code(), Code::UNAVAILABLE) << status.to_string();
  EXPECT_NE(status.text().find("incarnation 1 of node taker is over"), std::string::npos);
}

TEST_P(TransportConformance, NobodyThereIsUnavailable) {
  start(taker_, node_options("taker"));
  std::string address = "nowhere";
  if (!carriers_.loopback()) {
    start(holder_, node_options("holder"));
    address = holder_.address;
    holder_.transport.reset();
  }
  const Status status = loop_.wait(
      [&](Transport::Done done) { taker_.transport->connect(address, "", std::move(done)); });
  EXPECT_EQ(status.code(), Code::UNAVAILABLE) << status.to_string();
}

TEST_P(TransportConformance, MessagesArriveInOrderBothWays) {
  start_both();
  std::vector<std::string> sent;
  for (std::size_t i = 0; i < 600; ++i)
    sent.push_back(std::to_string(i) +
                   std::string(i % 50 == 0 ? kMaxMessageBytes - 8 : i % 97, 'x'));
  std::size_t taken = 0;
  const auto send_all = [&](TestNode& node, PeerId peer) {
    for (const std::string& text : sent) {
      const auto done = [&](const Status& status) { taken += status.ok() ? 1 : 0; };
      Status status = node.transport->send(peer, text, done);
      while (status.code() == Code::BUSY) {
        ASSERT_TRUE(loop_.turn(std::chrono::seconds(10)));
        status = node.transport->send(peer, text, done);
      }
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  };
  send_all(taker_, here_);
  send_all(holder_, there_);
  ASSERT_TRUE(loop_.until([&] { return taken == 2 * sent.size(); }));
  EXPECT_EQ(holder_.messages, sent);
  EXPECT_EQ(taker_.messages, sent);
}

TEST_P(TransportConformance, WhatIsNotTakenFillsTheQueueAndIsBusy) {
  start(holder_, node_options("holder"));
  Options options = node_options("taker");
  options.queued_messages = 3;
  start(taker_, options);
  ASSERT_TRUE(connect(taker_, holder_).ok());
  std::size_t taken = 0;
  const auto done = [&](const Status& status) { taken += status.ok() ? 1 : 0; };
  // The loop does not run: nobody takes them.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(taker_.transport->send(here_, "text", done).ok());
  EXPECT_EQ(taker_.transport->send(here_, "text", done).code(), Code::BUSY);
  const std::string large(kMaxMessageBytes + 1, 'x');
  EXPECT_EQ(taker_.transport->send(here_, large, done).code(), Code::TOO_LARGE);
  EXPECT_EQ(taker_.transport->send(PeerId{99}, "text", done).code(), Code::NOT_FOUND);
  ASSERT_TRUE(loop_.until([&] { return taken == 3; }));
  EXPECT_TRUE(taker_.transport->send(here_, "text", done).ok());
  ASSERT_TRUE(loop_.until([&] { return taken == 4; }));
  EXPECT_EQ(holder_.messages.size(), 4u);
}

TEST_P(TransportConformance, EverySizeArrivesBitByBit) {
  start_both();
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{77'777}, kMib - 1, kMib,
        kMib + 1, 3 * kMib + 5, 64 * kMib}) {
    SCOPED_TRACE(bytes);
    TestMemory& from = memory(bytes);
    TestMemory& to = memory(bytes);
    from.fill(static_cast<std::uint32_t>(bytes));
    const RegionId from_region = add(holder_, from);
    const RegionId to_region = add(taker_, to);
    const OfferId offered = offer(holder_, from);
    const Status status = fetch(offered, to);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(to.equals(from));
    EXPECT_TRUE(to.guarded());
    ASSERT_TRUE(loop_
                    .wait([&](Transport::Done done) {
                      holder_.transport->withdraw(offered, std::move(done));
                    })
                    .ok());
    EXPECT_TRUE(holder_.transport->remove_region(from_region).ok());
    EXPECT_TRUE(taker_.transport->remove_region(to_region).ok());
  }
}

TEST_P(TransportConformance, SeveralAtOnceAndMessagesBetween) {
  start_both();
  std::vector<std::unique_ptr<TestMemory>> from;
  std::vector<std::unique_ptr<TestMemory>> to;
  std::size_t ended = 0;
  std::size_t taken = 0;
  for (std::uint32_t i = 0; i < 6; ++i) {
    from.push_back(std::make_unique<TestMemory>((i + 1) * kMib + i));
    to.push_back(std::make_unique<TestMemory>((i + 1) * kMib + i));
    from.back()->fill(i);
    add(holder_, *from.back());
    add(taker_, *to.back());
    const OfferId offered = offer(holder_, *from.back());
    const auto begun =
        taker_.transport->fetch(request(offered, *to.back()), [&](const Status& status) {
          EXPECT_TRUE(status.ok()) << status.to_string();
          ++ended;
        });
    ASSERT_TRUE(begun.has_value()) << begun.error().to_string();
    ASSERT_TRUE(taker_.transport->send(here_, "between", [&](const Status&) { ++taken; }).ok());
  }
  ASSERT_TRUE(loop_.until([&] { return ended == 6 && taken == 6; }));
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(to[i]->equals(*from[i])) << i;
    EXPECT_TRUE(to[i]->guarded()) << i;
  }
  EXPECT_TRUE(holder_.closed.empty());
}

TEST_P(TransportConformance, AnOldEpochIsRefused) {
  start_both();
  TestMemory& from = memory(5000);
  TestMemory& to = memory(5000);
  add(holder_, from);
  add(taker_, to);
  const OfferId offered = offer(holder_, from);
  holder_.transport->set_epoch(6);
  EXPECT_EQ(fetch(offered, to).code(), Code::UNAVAILABLE);
  const auto send = [&](Transport::Done done) {
    ASSERT_TRUE(taker_.transport->send(here_, "text", std::move(done)).ok());
  };
  const Status status = loop_.wait(send);
  EXPECT_EQ(status.code(), Code::UNAVAILABLE);
  EXPECT_NE(status.text().find("epoch 5 is over, it is 6"), std::string::npos)
      << status.to_string();
  EXPECT_TRUE(holder_.messages.empty());
  taker_.transport->set_epoch(6);
  taker_.transport->set_epoch(3);  // never back
  EXPECT_TRUE(loop_.wait(send).ok());
  EXPECT_TRUE(fetch(offered, to).ok());
  taker_.transport->set_epoch(7);
  EXPECT_EQ(fetch(offered, to).code(), Code::UNAVAILABLE) << "the bytes are of the old one";
}

TEST_P(TransportConformance, WhatCannotBeFetchedSaysWhy) {
  start_both();
  TestMemory& from = memory(5000);
  TestMemory& to = memory(5000);
  TestMemory& longer = memory(5001);
  const OfferId none{77};
  EXPECT_EQ(taker_.transport->fetch(request(none, to), {}).error().code(), Code::INVALID_ARGUMENT)
      << "not in a region";
  EXPECT_EQ(holder_.transport->offer({from.used(), {}}).error().code(), Code::INVALID_ARGUMENT);
  const RegionId region = add(holder_, from);
  add(taker_, to);
  add(taker_, longer);
  const OfferId offered = offer(holder_, from);
  const OfferId for_another = offer(holder_, from, PeerId{99});
  Status status = fetch(none, to);
  EXPECT_EQ(status.code(), Code::NOT_FOUND);
  EXPECT_EQ(status.text().find("model 7: segment weights: node holder: offer 77"), 0u)
      << status.to_string();
  EXPECT_EQ(fetch(for_another, to).code(), Code::NOT_FOUND);
  EXPECT_EQ(fetch(offered, longer).code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(holder_.transport->remove_region(region).code(), Code::BUSY);
  const auto withdraw = [&](OfferId which) {
    return loop_.wait(
        [&](Transport::Done done) { holder_.transport->withdraw(which, std::move(done)); });
  };
  EXPECT_TRUE(withdraw(offered).ok());
  EXPECT_EQ(fetch(offered, to).code(), Code::NOT_FOUND);
  EXPECT_TRUE(withdraw(for_another).ok());
  EXPECT_TRUE(holder_.transport->remove_region(region).ok());
}

TEST_P(TransportConformance, TooManyFetchesAreBusy) {
  start(holder_, node_options("holder"));
  Options options = node_options("taker");
  options.queued_fetches = 2;
  start(taker_, options);
  ASSERT_TRUE(connect(taker_, holder_).ok());
  TestMemory& to = memory(64);
  const RegionId region = add(taker_, to);
  int ended = 0;
  const auto done = [&](const Status&) { ++ended; };
  ASSERT_TRUE(taker_.transport->fetch(request(OfferId{1}, to), done).has_value());
  ASSERT_TRUE(taker_.transport->fetch(request(OfferId{1}, to), done).has_value());
  EXPECT_EQ(taker_.transport->fetch(request(OfferId{1}, to), done).error().code(), Code::BUSY);
  EXPECT_EQ(taker_.transport->remove_region(region).code(), Code::BUSY);
  ASSERT_TRUE(loop_.until([&] { return ended == 2; }));
  EXPECT_TRUE(taker_.transport->remove_region(region).ok());
}

// A fetch of 32 MiB whose end is reported under `ended`, when some of it has arrived.
class UnderWay : public TransportConformance {
 protected:
  void TearDown() override {
    carriers_.net->set_fault(nullptr);
    loop_.each = nullptr;
  }
  void begin() {
    start_both();
    from_.fill(1);
    add(holder_, from_);
    add(taker_, to_);
    // In loopback it stays in the middle for certain.
    carriers_.net->set_fault([this](std::string_view header, std::size_t) {
      const bool held = decode_header(header)->type == MessageType::kChunk && ++chunks_ > 3;
      return held ? LoopbackNet::Fate::kHold : LoopbackNet::Fate::kPass;
    });
    const auto begun = taker_.transport->fetch(request(offer(holder_, from_), to_),
                                               [this](const Status& status) { ended_ = status; });
    ASSERT_TRUE(begun.has_value()) << begun.error().to_string();
    fetch_ = *begun;
    loop_.each = [] {};  // often
    ASSERT_TRUE(loop_.until([&] { return taker_.transport->progress(fetch_) > 0 || ended_; }));
    ASSERT_FALSE(carriers_.loopback() && ended_);
  }
  // Nothing is written to the memory any more, whatever still comes.
  void expect_left_alone() {
    EXPECT_TRUE(to_.guarded());
    to_.set(7);
    carriers_.net->set_fault(nullptr);
    carriers_.net->release();
    int turns = 0;
    EXPECT_TRUE(loop_.until([&] { return ++turns > 20; }));
    EXPECT_TRUE(to_.is_all(7));
  }
  TestMemory& from_ = memory(32 * kMib);
  TestMemory& to_ = memory(32 * kMib);
  FetchId fetch_;
  std::optional<Status> ended_;
  int chunks_ = 0;  // under the net's lock
};

// What was quicker than the fault is complete.
#define EXPECT_ENDED(expected)                                    \
  do {                                                            \
    ASSERT_TRUE(loop_.until([&] { return ended_.has_value(); })); \
    if (ended_->ok())                                             \
      EXPECT_TRUE(to_.equals(from_));                             \
    else                                                          \
      EXPECT_EQ(ended_->code(), expected) << ended_->to_string(); \
  } while (false)

TEST_P(UnderWay, TheHolderGoesAway) {
  begin();
  holder_.transport.reset();
  EXPECT_ENDED(Code::UNAVAILABLE);
  ASSERT_TRUE(loop_.until([&] { return !taker_.closed.empty(); }));
  EXPECT_EQ(taker_.closed[0].second.code(), Code::UNAVAILABLE);
  EXPECT_EQ(taker_.transport->progress(fetch_), 0u);
  expect_left_alone();
  EXPECT_EQ(taker_.transport->send(here_, "text", {}).code(), Code::NOT_FOUND);
}

TEST_P(UnderWay, TheTakerGoesAwayAndTheHolderGetsItsMemoryBack) {
  begin();
  taker_.transport.reset();
  ASSERT_TRUE(loop_.until([&] { return !holder_.closed.empty(); }));
  EXPECT_TRUE(loop_
                  .wait([&](Transport::Done done) {
                    holder_.transport->withdraw(OfferId{1}, std::move(done));
                  })
                  .ok());
}

TEST_P(UnderWay, Cancel) {
  begin();
  taker_.transport->cancel(fetch_);
  EXPECT_ENDED(Code::CANCELLED);
  expect_left_alone();
  ended_.reset();
  EXPECT_TRUE(fetch(OfferId{1}, to_).ok()) << "the connection goes on";
  EXPECT_TRUE(to_.equals(from_));
  taker_.transport->cancel(fetch_);  // over: nothing happens
}

TEST_P(UnderWay, CloseEndsIt) {
  begin();
  std::optional<Status> message;
  ASSERT_TRUE(
      taker_.transport->send(here_, "text", [&](const Status& status) { message = status; }).ok());
  taker_.transport->close(here_);
  EXPECT_ENDED(Code::CANCELLED);
  ASSERT_TRUE(loop_.until([&] { return message.has_value() && !holder_.closed.empty(); }));
  EXPECT_TRUE(taker_.closed.empty()) << "it was closed here";
  expect_left_alone();
  EXPECT_TRUE(connect(taker_, holder_).ok());
}

TEST_P(UnderWay, BothGoAway) {
  begin();
  holder_.transport.reset();
  taker_.transport.reset();
  expect_left_alone();
}

const auto kKinds = testing::Values("loopback", "tcp", "shared");
INSTANTIATE_TEST_SUITE_P(All, TransportConformance, kKinds);
INSTANTIATE_TEST_SUITE_P(All, UnderWay, kKinds);

// ---- faults of the network, and time ----

class LoopbackFaults : public TransportTest {
 protected:
  void TearDown() override { loop_.each = nullptr; }
  void start_with_clock() {
    Options options = node_options("holder");
    options.clock = &clock_;
    start(holder_, options);
    options.identity.node = "taker";
    start(taker_, options);
    ASSERT_TRUE(connect(taker_, holder_).ok());
  }
  // Time passes, step by step, until it is so; the workers look when they are called.
  bool pass_time_until(const std::function<bool()>& done) {
    loop_.each = [this] {
      clock_.advance({kSecond.ns / 5});  // slowly enough for a busy machine to answer pings
      if (holder_.transport) holder_.transport->set_epoch(0);
      if (taker_.transport) taker_.transport->set_epoch(0);
    };
    const bool came = loop_.until(done);
    loop_.each = nullptr;
    return came;
  }
  void begin(TestMemory& from, TestMemory& to, Duration timeout) {
    from.fill(3);
    add(holder_, from);
    add(taker_, to);
    FetchRequest fetch = request(offer(holder_, from), to);
    fetch.timeout = timeout;
    ASSERT_TRUE(taker_.transport->fetch(fetch, [this](const Status& status) { ended_ = status; })
                    .has_value());
  }
  static LoopbackNet::Fault of_type(MessageType type, LoopbackNet::Fate fate) {
    return [=](std::string_view header, std::size_t) {
      return decode_header(header)->type == type ? fate : LoopbackNet::Fate::kPass;
    };
  }
  std::optional<Status> ended_;
};

TEST_P(LoopbackFaults, SilenceEndsTheConnection) {
  start_with_clock();
  carriers_.net->set_fault([](std::string_view, std::size_t) { return LoopbackNet::Fate::kDrop; });
  ASSERT_TRUE(pass_time_until([&] { return !taker_.closed.empty() && !holder_.closed.empty(); }));
  EXPECT_EQ(taker_.closed[0].second.code(), Code::UNAVAILABLE);
  EXPECT_NE(
      (taker_.closed[0].second.text() + holder_.closed[0].second.text()).find("nothing heard for"),
      std::string::npos);
}

TEST_P(LoopbackFaults, AnIdleConnectionLives) {
  start_with_clock();
  const TimePoint begin = clock_.now();
  ASSERT_TRUE(pass_time_until([&] { return clock_.now() - begin > Duration{30 * kSecond.ns}; }));
  EXPECT_TRUE(taker_.closed.empty());
  EXPECT_TRUE(holder_.closed.empty());
}

TEST_P(LoopbackFaults, ALostChunkEndsAtTheDeadline) {
  start_with_clock();
  carriers_.net->set_fault(of_type(MessageType::kChunk, LoopbackNet::Fate::kDrop));
  TestMemory& from = memory(3 * kMib);
  TestMemory& to = memory(3 * kMib);
  begin(from, to, {5 * kSecond.ns});
  ASSERT_TRUE(pass_time_until([&] { return ended_.has_value(); }));
  EXPECT_EQ(ended_->code(), Code::TIMEOUT) << ended_->to_string();
  EXPECT_TRUE(taker_.closed.empty());
  // A holder that answers everything but that is no use.
  ASSERT_TRUE(pass_time_until([&] { return !taker_.closed.empty(); }));
  EXPECT_NE(taker_.closed[0].second.text().find("does not answer"), std::string::npos);
}

TEST_P(LoopbackFaults, AChunkThatComesAfterTheDeadlineIsDropped) {
  start_with_clock();
  carriers_.net->set_fault(of_type(MessageType::kChunk, LoopbackNet::Fate::kHold));
  TestMemory& from = memory(3 * kMib);
  TestMemory& to = memory(3 * kMib);
  begin(from, to, {5 * kSecond.ns});
  ASSERT_TRUE(pass_time_until([&] { return ended_.has_value(); }));
  to.set(7);
  carriers_.net->set_fault(nullptr);
  carriers_.net->release();
  TestMemory& other = memory(3 * kMib);
  add(taker_, other);
  ASSERT_TRUE(fetch(OfferId{1}, other).ok()) << "behind what was held";
  EXPECT_TRUE(other.equals(from));
  EXPECT_TRUE(to.is_all(7));
}

TEST_P(LoopbackFaults, MessagesThatOvertakeWaitForTheEarlierOnes) {
  start_with_clock();
  std::atomic<int> seen = 0;
  carriers_.net->set_fault([&](std::string_view header, std::size_t) {
    const bool held = decode_header(header)->type == MessageType::kText && seen++ == 0;
    return held ? LoopbackNet::Fate::kHold : LoopbackNet::Fate::kPass;
  });
  int taken = 0;
  for (const char* text : {"one", "two", "three"})
    ASSERT_TRUE(taker_.transport->send(here_, text, [&](const Status&) { ++taken; }).ok());
  ASSERT_TRUE(loop_.until([&] { return seen == 3; }));
  EXPECT_TRUE(holder_.messages.empty());
  carriers_.net->release();
  ASSERT_TRUE(loop_.until([&] { return taken == 3; }));
  EXPECT_EQ(holder_.messages, (std::vector<std::string>{"one", "two", "three"}));
  carriers_.net->set_fault(nullptr);
}

TEST_P(LoopbackFaults, ALostMessageEndsTheConnectionAndIsNotTaken) {
  start_with_clock();
  carriers_.net->set_fault(of_type(MessageType::kText, LoopbackNet::Fate::kDrop));
  ASSERT_TRUE(
      taker_.transport->send(here_, "x", [&](const Status& status) { ended_ = status; }).ok());
  ASSERT_TRUE(pass_time_until([&] { return ended_.has_value(); }));
  EXPECT_EQ(ended_->code(), Code::UNAVAILABLE) << ended_->to_string();
  EXPECT_NE(ended_->text().find("was not taken within 10.0 s"), std::string::npos);
}

TEST_P(LoopbackFaults, ACutInTheMiddleIsUnavailableAtOnce) {
  start_with_clock();
  std::atomic<int> chunks = 0;
  carriers_.net->set_fault([&](std::string_view header, std::size_t) {
    const bool third = decode_header(header)->type == MessageType::kChunk && ++chunks == 3;
    return third ? LoopbackNet::Fate::kCut : LoopbackNet::Fate::kPass;
  });
  TestMemory& from = memory(12 * kMib);
  TestMemory& to = memory(12 * kMib);
  begin(from, to, {60 * kSecond.ns});
  ASSERT_TRUE(loop_.until([&] { return ended_.has_value(); }));
  EXPECT_EQ(ended_->code(), Code::UNAVAILABLE) << ended_->to_string();
  EXPECT_TRUE(to.guarded());
  carriers_.net->set_fault(nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, LoopbackFaults, testing::Values("loopback"));

TEST(TransportOptions, WhatMakesNoSenseIsRefused) {
  const auto code_of = [](const Options& options) {
    const auto made = make_loopback_transport(make_loopback_net(), options, {}, [](auto) {});
    return made.error().code();
  };
  EXPECT_EQ(code_of(node_options("node")), Code::OK);
  EXPECT_EQ(code_of(node_options("")), Code::INVALID_ARGUMENT);
  Options options = node_options("node");
  options.authenticator = nullptr;
  EXPECT_EQ(code_of(options), Code::INVALID_ARGUMENT);
  options = node_options("node");
  options.chunk_bytes = kMaxChunkBytes + 1;
  EXPECT_EQ(code_of(options), Code::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace plexrl::transport
