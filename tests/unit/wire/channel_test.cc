// SPDX-License-Identifier: Apache-2.0
#include "wire/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <numeric>

#include "wire/blocking.h"

namespace plexrl::wire {
namespace {

struct Pair {
  UniqueFd a, b;
};

Pair socket_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Any bytes will do: a channel does not look into payloads.
flatbuffers::DetachedBuffer payload_of(std::size_t size, std::uint8_t first = 1) {
  flatbuffers::FlatBufferBuilder builder(size + 64);
  std::vector<std::uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), first);
  builder.PushBytes(bytes.data(), bytes.size());
  builder.Finish(flatbuffers::Offset<flatbuffers::Table>(builder.GetSize()));
  return builder.Release();
}

std::vector<std::uint8_t> copy(const flatbuffers::DetachedBuffer& buffer) {
  return {buffer.data(), buffer.data() + buffer.size()};
}

void write_raw(int fd, std::span<const std::uint8_t> bytes, const std::vector<int>& fds = {}) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)] = {};
  iovec vector{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  ASSERT_EQ(::sendmsg(fd, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

std::vector<std::uint8_t> raw_frame(std::size_t payload, std::uint16_t fds = 0) {
  const auto header = encode_header({static_cast<std::uint32_t>(payload), fds});
  std::vector<std::uint8_t> bytes(header.begin(), header.end());
  bytes.resize(kHeaderBytes + payload, 7);
  return bytes;
}

// A pipe whose reading end tells whether all writing ends were closed.
struct Witness {
  UniqueFd read, write;
  Witness() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    read.reset(fds[0]);
    write.reset(fds[1]);
  }
  [[nodiscard]] bool all_closed() const {
    char byte;
    return ::read(read.get(), &byte, 1) == 0;
  }
};

TEST(Channel, FramesArriveInOrderWithTheirBytes) {
  Pair pair = socket_pair();
  Channel a(std::move(pair.a)), b(std::move(pair.b));
  auto first = payload_of(10, 1), second = payload_of(3000, 9);
  const auto first_bytes = copy(first), second_bytes = copy(second);
  ASSERT_TRUE(a.send(std::move(first)).ok());
  ASSERT_TRUE(a.send(std::move(second)).ok());
  ASSERT_TRUE(b.receive().ok());
  EXPECT_EQ(b.next()->payload, first_bytes);
  EXPECT_EQ(b.next()->payload, second_bytes);
  EXPECT_FALSE(b.next().has_value());
}

TEST(Channel, FrameThatComesByteByByte) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  const auto bytes = raw_frame(5);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(b.next().has_value());
    write_raw(pair.a.get(), {&bytes[i], 1});
    ASSERT_TRUE(b.receive().ok());
  }
  EXPECT_EQ(b.next()->payload, std::vector<std::uint8_t>(5, 7));
}

TEST(Channel, LargeFrameIsWrittenAsTheReaderTakesIt) {
  Pair pair = socket_pair();
  Channel a(std::move(pair.a)), b(std::move(pair.b));
  auto payload = payload_of(8U << 20);
  const auto bytes = copy(payload);
  ASSERT_TRUE(a.send(std::move(payload)).ok());
  EXPECT_TRUE(a.wants_write());
  std::optional<Frame> frame;
  for (int i = 0; i < 10'000 && !frame; ++i) {
    ASSERT_TRUE(a.flush().ok());
    ASSERT_TRUE(b.receive().ok());
    frame = b.next();
  }
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->payload, bytes);
  EXPECT_FALSE(a.wants_write());
  EXPECT_EQ(a.out_bytes(), 0U);
}

TEST(Channel, DescriptorsComeWithTheirOwnFrame) {
  Pair pair = socket_pair();
  Channel a(std::move(pair.a)), b(std::move(pair.b));
  Witness one, two;
  struct stat expected {};
  ::fstat(one.read.get(), &expected);
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(one.write));
  ASSERT_TRUE(a.send(payload_of(10)).ok());
  ASSERT_TRUE(a.send(payload_of(20), std::move(fds)).ok());
  fds.clear();
  fds.push_back(std::move(two.write));
  fds.emplace_back(::dup(two.read.get()));
  ASSERT_TRUE(a.send(payload_of(30), std::move(fds)).ok());
  ASSERT_TRUE(b.receive().ok());
  EXPECT_TRUE(b.next()->fds.empty());
  auto second = b.next();
  ASSERT_EQ(second->fds.size(), 1U);
  struct stat got {};
  ::fstat(second->fds[0].get(), &got);
  EXPECT_EQ(got.st_ino, expected.st_ino);
  EXPECT_EQ(b.next()->fds.size(), 2U);
  EXPECT_FALSE(one.all_closed());
  second.reset();
  EXPECT_TRUE(one.all_closed());
}

TEST(Channel, ReceivedDescriptorsAreCloseOnExec) {
  Pair pair = socket_pair();
  Channel a(std::move(pair.a)), b(std::move(pair.b));
  Witness witness;
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(witness.write));
  ASSERT_TRUE(a.send(payload_of(10), std::move(fds)).ok());
  ASSERT_TRUE(b.receive().ok());
  const auto frame = b.next();
  EXPECT_EQ(::fcntl(frame->fds.at(0).get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Channel, DescriptorsOfARejectedFrameAreClosed) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b), {.max_payload_bytes = 10});
  Witness witness;
  write_raw(pair.a.get(), raw_frame(11, 1), {witness.write.get()});
  witness.write.reset();
  EXPECT_EQ(b.receive().code(), Code::TOO_LARGE);
  EXPECT_TRUE(witness.all_closed());
}

TEST(Channel, DescriptorsOfATruncatedFrameAreClosed) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  Witness witness;
  const auto bytes = raw_frame(100, 1);
  write_raw(pair.a.get(), std::span(bytes).first(50), {witness.write.get()});
  witness.write.reset();
  pair.a.reset();
  EXPECT_EQ(b.receive().code(), Code::PROTOCOL);
  EXPECT_TRUE(witness.all_closed());
}

TEST(Channel, DescriptorsThatNoHeaderAnnouncedEndTheChannel) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  Witness witness;
  write_raw(pair.a.get(), raw_frame(10, 0), {witness.write.get()});
  witness.write.reset();
  EXPECT_EQ(b.receive().code(), Code::PROTOCOL);
  EXPECT_TRUE(witness.all_closed());
}

TEST(Channel, DescriptorsInTheMiddleOfAPayloadEndTheChannel) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  Witness witness;
  const auto bytes = raw_frame(100, 0);
  write_raw(pair.a.get(), std::span(bytes).first(60));
  ASSERT_TRUE(b.receive().ok());
  write_raw(pair.a.get(), std::span(bytes).subspan(60, 10), {witness.write.get()});
  witness.write.reset();
  EXPECT_EQ(b.receive().code(), Code::PROTOCOL);
  EXPECT_TRUE(witness.all_closed());
}

TEST(Channel, AnnouncedDescriptorsThatDoNotCome) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  write_raw(pair.a.get(), raw_frame(10, 2));
  EXPECT_EQ(b.receive().code(), Code::PROTOCOL);
}

TEST(Channel, MoreDescriptorsThanAnyFrameMayHave) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  Witness witness;
  write_raw(pair.a.get(), raw_frame(10, 20), std::vector<int>(20, witness.write.get()));
  witness.write.reset();
  EXPECT_EQ(b.receive().code(), Code::PROTOCOL);
  EXPECT_TRUE(witness.all_closed());
}

TEST(Channel, GarbageEndsItAndStaysTheAnswer) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  const std::string garbage = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  write_raw(pair.a.get(), {reinterpret_cast<const std::uint8_t*>(garbage.data()), garbage.size()});
  EXPECT_EQ(b.receive().code(), Code::PROTOCOL);
  EXPECT_EQ(b.receive().code(), Code::PROTOCOL);
  EXPECT_EQ(b.send(payload_of(10)).code(), Code::PROTOCOL);
  EXPECT_FALSE(b.wants_read());
  EXPECT_FALSE(b.wants_write());
}

TEST(Channel, FramesBeforeAnErrorAreStillDelivered) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  auto bytes = raw_frame(10);
  bytes.resize(bytes.size() + kHeaderBytes, 0xee);
  write_raw(pair.a.get(), bytes);
  EXPECT_EQ(b.receive().code(), Code::PROTOCOL);
  EXPECT_TRUE(b.next().has_value());
}

TEST(Channel, OrderlyCloseIsUnavailableAndHalfAFrameIsProtocol) {
  Pair orderly = socket_pair();
  Channel b(std::move(orderly.b));
  orderly.a.reset();
  EXPECT_EQ(b.receive().code(), Code::UNAVAILABLE);

  Pair broken = socket_pair();
  Channel c(std::move(broken.b));
  const auto bytes = raw_frame(10);
  write_raw(broken.a.get(), std::span(bytes).first(kHeaderBytes + 4));
  broken.a.reset();
  ASSERT_TRUE(c.receive().ok());  // the half that came
  EXPECT_EQ(c.receive().code(), Code::PROTOCOL);
}

TEST(Channel, WritingToAClosedPeerIsUnavailableWithoutASignal) {
  Pair pair = socket_pair();
  Channel a(std::move(pair.a));
  pair.b.reset();
  EXPECT_EQ(a.send(payload_of(10)).code(), Code::UNAVAILABLE);
}

TEST(Channel, APeerThatDoesNotReadMakesSendBusyAndLosesNothing) {
  Pair pair = socket_pair();
  Channel a(std::move(pair.a), {.max_out_bytes = 2U << 20}), b(std::move(pair.b));
  int accepted = 0;
  Status status;
  while (accepted < 1000 && status.ok()) {
    status = a.send(payload_of(100'000));
    accepted += status.ok();
  }
  EXPECT_EQ(status.code(), Code::BUSY);
  EXPECT_LE(a.out_bytes(), 2U << 20);
  int got = 0;
  for (int i = 0; i < 1000 && got < accepted; ++i) {
    ASSERT_TRUE(b.receive().ok());
    while (b.next()) ++got;
    ASSERT_TRUE(a.flush().ok());
  }
  EXPECT_EQ(got, accepted);
  EXPECT_TRUE(a.send(payload_of(10)).ok());
}

TEST(Channel, TooLargeMessageIsRefusedBeforeItIsQueued) {
  Pair pair = socket_pair();
  Channel a(std::move(pair.a), {.max_payload_bytes = 1000});
  EXPECT_EQ(a.send(payload_of(2000)).code(), Code::TOO_LARGE);
  EXPECT_TRUE(a.send(payload_of(100)).ok());
}

TEST(Channel, ReadingPausesWhileFramesAreNotTaken) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b), {.max_in_frames = 2});
  for (int i = 0; i < 3; ++i) write_raw(pair.a.get(), raw_frame(10));
  ASSERT_TRUE(b.receive().ok());
  EXPECT_FALSE(b.wants_read());
  while (b.next()) {
  }
  EXPECT_TRUE(b.wants_read());
}

TEST(Channel, DescriptorsHeldForUntakenFramesAreBounded) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b), {.max_in_fds = 4});
  Witness witness;
  for (int i = 0; i < 20; ++i)
    write_raw(pair.a.get(), raw_frame(10, 2), {witness.write.get(), witness.write.get()});
  ASSERT_TRUE(b.receive().ok());
  EXPECT_FALSE(b.wants_read());
  int frames = 0;
  while (b.next()) ++frames;
  EXPECT_EQ(frames, 2);
}

TEST(Channel, LimitsMayGrowAfterAuthentication) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b), {.max_payload_bytes = 10});
  write_raw(pair.a.get(), raw_frame(10));
  ASSERT_TRUE(b.receive().ok());
  b.set_limits({.max_payload_bytes = 20});
  write_raw(pair.a.get(), raw_frame(20));
  ASSERT_TRUE(b.receive().ok());
  EXPECT_EQ(b.next()->payload.size(), 10U);
  EXPECT_EQ(b.next()->payload.size(), 20U);
}

TEST(Blocking, ReceiveTimesOut) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  const TimePoint start = system_clock().now();
  EXPECT_EQ(receive_until(b, start + Duration{20 * kMillisecond.ns}).error().code(), Code::TIMEOUT);
  EXPECT_GE((system_clock().now() - start).ns, 20 * kMillisecond.ns);
  write_raw(pair.a.get(), raw_frame(10));
  EXPECT_TRUE(receive_until(b, system_clock().now() + Duration{10 * kSecond.ns}).has_value());
}

TEST(Blocking, SendTimesOutWhenThePeerDoesNotRead) {
  Pair pair = socket_pair();
  Channel a(std::move(pair.a));
  const TimePoint soon = system_clock().now() + Duration{20 * kMillisecond.ns};
  EXPECT_EQ(send_until(a, payload_of(4U << 20), {}, soon).code(), Code::TIMEOUT);
}

TEST(Blocking, AFrameBeforeTheCloseIsDelivered) {
  Pair pair = socket_pair();
  Channel b(std::move(pair.b));
  write_raw(pair.a.get(), raw_frame(10));
  pair.a.reset();
  const TimePoint deadline = system_clock().now() + Duration{10 * kSecond.ns};
  EXPECT_TRUE(receive_until(b, deadline).has_value());
  EXPECT_EQ(receive_until(b, deadline).error().code(), Code::UNAVAILABLE);
}

TEST(Blocking, PollTimeoutRoundsUp) {
  EXPECT_EQ(poll_timeout_ms({1'000'001}, {0}), 2);
  EXPECT_EQ(poll_timeout_ms({1}, {0}), 1);
  EXPECT_EQ(poll_timeout_ms({0}, {5}), 0);
}

}  // namespace
}  // namespace plexrl::wire
