// SPDX-License-Identifier: Apache-2.0
#include "wire/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace plexrl::wire {
namespace {

constexpr std::size_t kReadBytes = 64U << 10;
constexpr int kReadsPerCall = 8;
// Memory for a payload grows with what has arrived: a header alone costs the receiver this much.
constexpr std::size_t kFirstReserve = 64U << 10;
constexpr std::size_t kBatchVectors = 32;

}  // namespace

// Some frames as one sendmsg. The kernel ties descriptors to the first byte of a call, so a frame
// with unsent descriptors can only begin a batch.
struct Channel::Batch {
  std::array<iovec, kBatchVectors> vectors{};
  std::size_t count = 0;
  const std::vector<UniqueFd>* fds = nullptr;

  void add(const std::uint8_t* data, std::size_t size, std::size_t skip) {
    if (skip >= size) return;
    // iovec is not const-correct; sendmsg does not write.
    vectors[count++] = {const_cast<std::uint8_t*>(data) + skip, size - skip};
  }
};

Channel::Channel(UniqueFd socket, const Limits& limits)
    : socket_(std::move(socket)), limits_(limits) {
  const int flags = ::fcntl(socket_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) < 0)
    failure_ = errno_error(Code::IO, errno, "socket: cannot be made non-blocking");
}

Status Channel::fail(Status status) {
  failure_ = status;
  loose_fds_.clear();
  current_ = {};
  out_.clear();
  out_bytes_ = 0;
  return status;
}

bool Channel::wants_read() const noexcept {
  return failure_.ok() && in_bytes_ < limits_.max_in_bytes && in_.size() < limits_.max_in_frames &&
         in_fds_ < limits_.max_in_fds;
}

std::optional<Frame> Channel::next() {
  if (in_.empty()) return std::nullopt;
  Frame frame = std::move(in_.front());
  in_.pop_front();
  in_bytes_ -= frame.payload.size();
  in_fds_ -= frame.fds.size();
  return frame;
}

// ---- in ----

Status Channel::receive() {
  PLEXRL_TRY(failure_);
  for (int i = 0; i < kReadsPerCall && wants_read(); ++i) {
    const Result<bool> more = receive_some();
    if (!more) return fail(more.error());
    if (!*more) break;
  }
  return {};
}

Result<bool> Channel::receive_some() {
  std::array<std::uint8_t, kReadBytes> bytes;  // not initialised: filled by the kernel
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFrameFds)> control;
  iovec vector{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN) return false;
    if (errno == ECONNRESET) return error(Code::UNAVAILABLE, "the peer closed the connection");
    return errno_error(Code::IO, errno, "socket: receive");
  }
  PLEXRL_TRY(collect_fds(message));
  if (got == 0) return end_of_stream();
  PLEXRL_TRY(consume({bytes.data(), static_cast<std::size_t>(got)}));
  // A short read means that the socket is empty, unless descriptors cut it short.
  return static_cast<std::size_t>(got) == bytes.size() || message.msg_controllen > 0;
}

Status Channel::collect_fds(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      loose_fds_.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    return error(Code::PROTOCOL,
                 "frame: more than %u file descriptors, or none free in this process",
                 kMaxFrameFds);
  return {};
}

Status Channel::end_of_stream() const {
  if (header_bytes_ != 0)
    return error(Code::PROTOCOL, "the peer closed the connection inside a frame");
  return error(Code::UNAVAILABLE, "the peer closed the connection");
}

Status Channel::consume(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    if (payload_bytes_ == 0) {
      bytes = bytes.subspan(consume_header(bytes));
      if (header_bytes_ < kHeaderBytes) break;
      PLEXRL_TRY(begin_frame());
    } else {
      bytes = bytes.subspan(consume_payload(bytes));
    }
  }
  // A read ends after the bytes that carried descriptors, so only one frame's can be unclaimed.
  if (loose_fds_.size() > (header_bytes_ > 0 && payload_bytes_ == 0 ? limits_.max_fds : 0))
    return error(Code::PROTOCOL, "frame: file descriptors came that no frame header announced");
  return {};
}

std::size_t Channel::consume_header(std::span<const std::uint8_t> bytes) {
  const std::size_t count = std::min(bytes.size(), kHeaderBytes - header_bytes_);
  std::copy_n(bytes.begin(), count, header_.begin() + static_cast<std::ptrdiff_t>(header_bytes_));
  header_bytes_ += count;
  return count;
}

Status Channel::begin_frame() {
  PLEXRL_ASSIGN(const FrameHeader header, parse_header(header_, limits_));
  if (loose_fds_.size() < header.fd_count)
    return error(Code::PROTOCOL, "frame: %u file descriptors announced, %zu came",
                 unsigned{header.fd_count}, loose_fds_.size());
  const auto end = loose_fds_.begin() + header.fd_count;
  current_.fds.assign(std::make_move_iterator(loose_fds_.begin()), std::make_move_iterator(end));
  loose_fds_.erase(loose_fds_.begin(), end);
  payload_bytes_ = header.payload_bytes;
  current_.payload.reserve(std::min(payload_bytes_, kFirstReserve));
  return {};
}

std::size_t Channel::consume_payload(std::span<const std::uint8_t> bytes) {
  const std::size_t count = std::min(bytes.size(), payload_bytes_ - current_.payload.size());
  current_.payload.insert(current_.payload.end(), bytes.begin(),
                          bytes.begin() + static_cast<std::ptrdiff_t>(count));
  if (current_.payload.size() == payload_bytes_) {
    in_bytes_ += current_.payload.size();
    in_fds_ += current_.fds.size();
    in_.push_back(std::exchange(current_, {}));
    header_bytes_ = payload_bytes_ = 0;
  }
  return count;
}

// ---- out ----

Status Channel::send(flatbuffers::DetachedBuffer payload, std::vector<UniqueFd> fds) {
  PLEXRL_TRY(failure_);
  PLEXRL_CHECK(payload.size() > 0 && fds.size() <= kMaxFrameFds, "a frame has 1.. bytes, 0..8 fds");
  if (payload.size() > limits_.max_payload_bytes)
    return error(Code::TOO_LARGE, "message of %zu bytes, the limit is %u: use smaller batches",
                 payload.size(), limits_.max_payload_bytes);
  const std::size_t size = kHeaderBytes + payload.size();
  if (!out_.empty() && out_bytes_ + size > limits_.max_out_bytes)
    return error(Code::BUSY, "the peer does not read: %zu bytes wait to be sent", out_bytes_);
  const auto header = encode_header(
      {static_cast<std::uint32_t>(payload.size()), static_cast<std::uint16_t>(fds.size())});
  out_.push_back({header, std::move(payload), std::move(fds)});
  out_bytes_ += size;
  return out_.size() == 1 ? flush() : Status();
}

Status Channel::flush() {
  PLEXRL_TRY(failure_);
  bool would_block = false;
  while (!out_.empty() && !would_block) {
    Status status = write_batch(&would_block);
    if (!status.ok()) return fail(std::move(status));
  }
  return {};
}

void Channel::fill(Batch& batch) {
  for (Outgoing& frame : out_) {
    if (batch.count + 2 > kBatchVectors) return;
    if (!frame.fds.empty()) {
      if (batch.count > 0) return;
      batch.fds = &frame.fds;
    }
    batch.add(frame.header.data(), kHeaderBytes, frame.sent);
    batch.add(frame.payload.data(), frame.payload.size(),
              frame.sent > kHeaderBytes ? frame.sent - kHeaderBytes : 0);
  }
}

Status Channel::write_batch(bool* would_block) {
  Batch batch;
  fill(batch);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFrameFds)> control{};
  msghdr message{};
  message.msg_iov = batch.vectors.data();
  message.msg_iovlen = batch.count;
  if (batch.fds != nullptr) {
    const std::size_t bytes = batch.fds->size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(bytes);
    for (std::size_t i = 0; i < batch.fds->size(); ++i) {
      const int fd = (*batch.fds)[i].get();
      std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof fd);
    }
  }
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (sent >= 0) {
    written(static_cast<std::size_t>(sent));
    return {};
  }
  *would_block = errno == EAGAIN;
  if (*would_block || errno == EINTR) return {};
  if (errno == EPIPE || errno == ECONNRESET)
    return error(Code::UNAVAILABLE, "the peer closed the connection");
  return errno_error(Code::IO, errno, "socket: send");
}

void Channel::written(std::size_t bytes) {
  out_bytes_ -= bytes;
  while (bytes > 0) {
    Outgoing& frame = out_.front();
    const std::size_t count = std::min(bytes, frame.size() - frame.sent);
    frame.sent += count;
    frame.fds.clear();
    bytes -= count;
    if (frame.sent == frame.size()) out_.pop_front();
  }
}

}  // namespace plexrl::wire
