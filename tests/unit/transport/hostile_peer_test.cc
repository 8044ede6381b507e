// SPDX-License-Identifier: Apache-2.0
// A peer that breaks the protocol, on each carrier: it ends with a reason, and nothing is written
// where it should not be.
#include "transport/handshake.h"
#include "unit/transport/transport_fixture.h"

namespace plexrl::transport {
namespace {

// A peer that does the handshake as it should, unless told otherwise, and then what the test says.
// It has no thread: the test's loop turns it.
class Rogue final : public Carrier::Sink {
 public:
  explicit Rogue(std::unique_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {}
  ~Rogue() override { carrier_.reset(); }
  Rogue(const Rogue&) = delete;
  Rogue& operator=(const Rogue&) = delete;

  std::string listen(const std::string& address) { return carrier_->listen(address).value_or(""); }
  void connect(const std::string& address) {
    const auto link = carrier_->connect(address);
    ASSERT_TRUE(link.has_value()) << link.error().to_string();
    begin(*link, true);
  }
  void turn() { carrier_->turn(*this, kMillisecond); }
  void say(Header header, std::string_view payload = {}) {
    if (header.key == 0) header.key = handshake_->peer().key;
    header.epoch = 5;
    EXPECT_TRUE(carrier_->send(link_, encode(header), payload).ok());
  }
  void say_bulk(Header header, std::span<const std::byte> payload) {
    header.key = handshake_->peer().key;
    header.epoch = 5;
    EXPECT_TRUE(carrier_->send_bulk(link_, encode(header), payload, 1).ok());
  }
  void say_frame(std::string_view frame) { EXPECT_TRUE(carrier_->send_frame(link_, frame).ok()); }

  std::string greeting;                          // instead of the right one
  std::function<void(const Header&)> on_header;  // what came
  std::vector<Header> chunks;
  bool is_broken = false;
  bool is_open = false;

 private:
  void begin(LinkId link, bool initiator) {
    link_ = link;
    Handshake::Setup setup;
    setup.identity = {"lab", "rogue", 1};
    setup.epoch = 5;
    setup.key = 42;
    setup.initiator = initiator;
    setup.authenticator = &authenticator_;
    setup.address = [this] { return carrier_->local_address(link_); };
    setup.admit = [](const Hello&) { return Status(); };
    handshake_ = std::make_unique<Handshake>(std::move(setup));
  }
  void accepted(LinkId link) override {
    begin(link, false);
    connected(link);
  }
  void connected(LinkId) override {  // the other end may have given up already
    static_cast<void>(
        carrier_->send_frame(link_, greeting.empty() ? handshake_->greeting() : greeting));
  }
  void frame(LinkId, std::string_view bytes) override {
    const auto answer = handshake_->take(bytes);
    if (!answer.has_value()) return;
    if (handshake_->complete()) {
      ASSERT_TRUE(carrier_->open(link_, handshake_->peer().address).ok());
      is_open = true;
    }
    if (*answer) static_cast<void>(carrier_->send_frame(link_, **answer));
  }
  void message(LinkId, std::string_view header, std::string_view) override {
    const Header came = decode_header(header).value_or(Header{});
    if (came.type == MessageType::kPing) say({.type = MessageType::kPong});
    if (came.type == MessageType::kChunk) chunks.push_back(came);
    if (on_header) on_header(came);
  }
  std::optional<Landing> bulk(LinkId, std::string_view header, std::size_t) override {
    chunks.push_back(decode_header(header).value_or(Header{}));
    return std::nullopt;
  }
  void landed(LinkId, std::uint64_t, const Status&) override {}
  void sent(LinkId, std::uint64_t, const Status&) override {}
  void broken(LinkId, const Status&) override { is_broken = true; }

  std::unique_ptr<Carrier> carrier_;
  TestAuthenticator authenticator_{"word"};
  std::unique_ptr<Handshake> handshake_;
  LinkId link_;
};

class HostilePeer : public TransportTest {
 protected:
  // Its address, when it listens.
  void start_rogue() {
    auto carrier = carriers_.make();
    ASSERT_TRUE(carrier.has_value());
    rogue_ = std::make_unique<Rogue>(std::move(carrier).value());
    loop_.each = [this] { rogue_->turn(); };
  }
  Status connect_to_rogue() {
    const std::string address = rogue_->listen(carriers_.listen_address());
    return loop_.wait([&](Transport::Done done) {
      here_ = taker_.transport->connect(address, "", std::move(done));
    });
  }
  void connect_rogue() {
    rogue_->connect(holder_.address);
    ASSERT_TRUE(loop_.until([&] { return rogue_->is_open; }));
    rogue_->say({.type = MessageType::kPing});
    ASSERT_TRUE(loop_.until([&] { return !holder_.accepted.empty(); }));
  }
  void expect_closed(TestNode& node, const char* reason) {
    ASSERT_TRUE(loop_.until([&] { return !node.closed.empty(); }));
    EXPECT_EQ(node.closed[0].second.code(), Code::PROTOCOL) << node.closed[0].second.to_string();
    EXPECT_NE(node.closed[0].second.text().find(reason), std::string::npos)
        << node.closed[0].second.to_string();
    EXPECT_TRUE(loop_.until([&] { return rogue_->is_broken; }));
  }
  // The victim fetches; the rogue answers each chunk with `answer`.
  void expect_fetch_refused(const std::function<void(const Header&)>& answer) {
    start(taker_, node_options("taker"));
    start_rogue();
    ASSERT_TRUE(connect_to_rogue().ok());
    rogue_->on_header = [&](const Header& header) {
      if (header.type == MessageType::kGet) answer(header);
    };
    TestMemory& to = memory(200'000);
    to.set(7);
    add(taker_, to);
    const Status status = fetch(OfferId{1}, to);
    EXPECT_EQ(status.code(), Code::PROTOCOL) << status.to_string();
    EXPECT_TRUE(to.guarded());
    EXPECT_TRUE(to.is_all(7)) << "nothing of it was written";
    expect_closed(taker_, "not asked for");
  }
  const std::vector<std::byte> bytes_{std::size_t{1} << 20, std::byte{9}};
  std::unique_ptr<Rogue> rogue_;
};

TEST_P(HostilePeer, AnotherVersionIsRefused) {
  start(taker_, node_options("taker"));
  start_rogue();
  rogue_->greeting = encode(Greeting{.version = 2, .nonce = {}});
  const Status status = connect_to_rogue();
  EXPECT_EQ(status.code(), Code::UNSUPPORTED) << status.to_string();
  EXPECT_NE(status.text().find("protocol 2, this node 1"), std::string::npos);
}

TEST_P(HostilePeer, NoiseIsRefused) {
  start(taker_, node_options("taker"));
  start_rogue();
  rogue_->greeting = "GET / HTTP/1.1\r\n\r\n";
  EXPECT_EQ(connect_to_rogue().code(), Code::PROTOCOL);
}

TEST_P(HostilePeer, AFrameAfterTheHandshakeEndsIt) {
  start(holder_, node_options("holder"));
  start_rogue();
  connect_rogue();
  rogue_->say_frame(encode(Greeting{}));
  expect_closed(holder_, "a frame after the handshake");
}

TEST_P(HostilePeer, WhoDoesNotSpeakIsGivenUp) {
  Options options = node_options("holder");
  options.clock = &clock_;
  start(holder_, options);
  start_rogue();
  rogue_->connect(holder_.address);
  loop_.each = [this] {  // its hello never comes
    clock_.advance(kSecond);
    holder_.transport->set_epoch(0);
  };
  const TimePoint begin = clock_.now();
  ASSERT_TRUE(loop_.until([&] { return clock_.now() - begin > Duration{20 * kSecond.ns}; }));
  loop_.each = [this] { rogue_->turn(); };
  EXPECT_TRUE(loop_.until([&] { return rogue_->is_broken; }));
  EXPECT_TRUE(holder_.accepted.empty());
}

TEST_P(HostilePeer, MoreBytesThanAskedForAreNotWritten) {
  expect_fetch_refused([this](const Header& get) {
    rogue_->say_bulk({.type = MessageType::kChunk, .number = get.number, .bytes = get.bytes},
                     bytes_);
  });
}

TEST_P(HostilePeer, FewerBytesThanAskedForAreNotWritten) {
  expect_fetch_refused([this](const Header& get) {
    rogue_->say_bulk({.type = MessageType::kChunk, .number = get.number, .bytes = get.bytes},
                     std::span(bytes_).first(get.bytes - 1));
  });
}

TEST_P(HostilePeer, BytesNobodyAskedForAreNotWritten) {
  expect_fetch_refused([this](const Header& get) {
    rogue_->say_bulk({.type = MessageType::kChunk, .number = get.number + 1, .bytes = get.bytes},
                     std::span(bytes_).first(get.bytes));
  });
}

TEST_P(HostilePeer, MessagesOfAnotherConnectionEndIt) {
  start(holder_, node_options("holder"));
  start_rogue();
  connect_rogue();
  rogue_->say({.type = MessageType::kText, .key = 1234, .number = 1}, "text");
  expect_closed(holder_, "not of this connection");
  EXPECT_TRUE(holder_.messages.empty());
}

TEST_P(HostilePeer, MessagesOutsideOfTheWindowEndIt) {
  start(holder_, node_options("holder"));
  start_rogue();
  connect_rogue();
  rogue_->say({.type = MessageType::kText, .number = 257}, "text");
  expect_closed(holder_, "more than was allowed");
}

TEST_P(HostilePeer, TheSameMessageTwiceEndsIt) {
  start(holder_, node_options("holder"));
  start_rogue();
  connect_rogue();
  rogue_->say({.type = MessageType::kText, .number = 1}, "text");
  rogue_->say({.type = MessageType::kText, .number = 1}, "text");
  expect_closed(holder_, "more than was allowed");
  EXPECT_LE(holder_.messages.size(), 1u);
}

TEST_P(HostilePeer, TakingWhatWasNotSentEndsIt) {
  start(holder_, node_options("holder"));
  start_rogue();
  connect_rogue();
  rogue_->say({.type = MessageType::kTaken, .number = 1});
  expect_closed(holder_, "which was not sent");
}

TEST_P(HostilePeer, OnlyBytesOfTheOfferAreGiven) {
  start(holder_, node_options("holder"));
  start_rogue();
  connect_rogue();
  TestMemory& from = memory(5000);
  add(holder_, from);
  const OfferId offered = offer(holder_, from);
  const auto get = [&](std::uint64_t total, std::uint64_t offset, std::uint64_t bytes) {
    rogue_->chunks.clear();
    rogue_->say({.type = MessageType::kGet,
                 .number = 1,
                 .offer = offered.value,
                 .total = total,
                 .offset = offset,
                 .bytes = bytes});
    EXPECT_TRUE(loop_.until([&] { return !rogue_->chunks.empty(); }));
    return code_from_wire(rogue_->chunks.empty() ? -1 : rogue_->chunks[0].code);
  };
  EXPECT_EQ(get(5000, 0, 5001), Code::INVALID_ARGUMENT);
  EXPECT_EQ(get(5000, 5001, 0), Code::INVALID_ARGUMENT);
  EXPECT_EQ(get(5000, 4999, 2), Code::INVALID_ARGUMENT);
  EXPECT_EQ(get(5000, 0xffffffffffffffff, 2), Code::INVALID_ARGUMENT);
  EXPECT_EQ(get(5000, 2, 0xffffffffffffffff), Code::INVALID_ARGUMENT);
  EXPECT_EQ(get(9000, 0, 1), Code::INVALID_ARGUMENT);
  EXPECT_EQ(get(5000, 4999, 1), Code::OK);
  EXPECT_TRUE(holder_.closed.empty());
}

INSTANTIATE_TEST_SUITE_P(All, HostilePeer, testing::Values("loopback", "tcp"));

}  // namespace
}  // namespace plexrl::transport
