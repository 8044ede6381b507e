// SPDX-License-Identifier: Apache-2.0
// Channel: one end of a frame stream over a non-blocking AF_UNIX SOCK_STREAM socket.
//
// For an event loop: poll fd() for reading while wants_read(), for writing while wants_write();
// call receive() when readable, then take frames with next(); call flush() when writable. send()
// writes at once what the socket takes and keeps the rest. Both directions are bounded by Limits:
// reading pauses while the taken-in frames fill their bounds, send() is BUSY when the peer does not
// read.
//
// File descriptors arrive with the frame that they were sent with. Those of a frame that is
// rejected or never completed are closed. An error ends the channel: every later receive/send/flush
// returns it; frames that were complete before it can still be taken.
//
// One thread at a time. Owns the socket.
#pragma once

#include <sys/socket.h>

#include <deque>
#include <optional>

#include "flatbuffers/flatbuffers.h"
#include "wire/frame.h"

namespace plexrl::wire {

class Channel {
 public:
  // Makes the socket non-blocking.
  explicit Channel(UniqueFd socket, const Limits& limits = {});
  Channel(Channel&&) noexcept = default;
  Channel& operator=(Channel&&) noexcept = default;
  ~Channel() = default;

  // Reads what is there, at most 512 KiB so that one peer cannot hold the loop. Errors: UNAVAILABLE
  // when the peer closed between frames, PROTOCOL, TOO_LARGE, IO.
  [[nodiscard]] Status receive();
  // The next complete frame, in order of arrival.
  [[nodiscard]] std::optional<Frame> next();

  // Queues one frame and writes what the socket takes. BUSY (nothing queued, channel still good)
  // when max_out_bytes would be passed; one frame is always taken when nothing is queued. TOO_LARGE
  // when the payload is above max_payload_bytes. The descriptors are closed once they are sent.
  [[nodiscard]] Status send(flatbuffers::DetachedBuffer payload, std::vector<UniqueFd> fds = {});
  [[nodiscard]] Status flush();

  [[nodiscard]] bool wants_read() const noexcept;
  [[nodiscard]] bool wants_write() const noexcept { return failure_.ok() && !out_.empty(); }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] std::size_t out_bytes() const noexcept { return out_bytes_; }
  [[nodiscard]] const Status& failure() const noexcept { return failure_; }
  // Limits may grow after the peer has proved who it is. Holds from the next header on.
  void set_limits(const Limits& limits) noexcept { limits_ = limits; }
  [[nodiscard]] const Limits& limits() const noexcept { return limits_; }

 private:
  struct Outgoing {
    std::array<std::uint8_t, kHeaderBytes> header;
    flatbuffers::DetachedBuffer payload;
    std::vector<UniqueFd> fds;  // empty once sent
    std::size_t sent = 0;       // of header and payload together
    [[nodiscard]] std::size_t size() const noexcept { return kHeaderBytes + payload.size(); }
  };
  struct Batch;

  // True when more may be there.
  [[nodiscard]] Result<bool> receive_some();
  [[nodiscard]] Status collect_fds(msghdr& message);
  [[nodiscard]] Status consume(std::span<const std::uint8_t> bytes);
  [[nodiscard]] std::size_t consume_header(std::span<const std::uint8_t> bytes);
  [[nodiscard]] Status begin_frame();
  [[nodiscard]] std::size_t consume_payload(std::span<const std::uint8_t> bytes);
  [[nodiscard]] Status end_of_stream() const;
  [[nodiscard]] Status write_batch(bool* would_block);
  void fill(Batch& batch);
  void written(std::size_t bytes);
  Status fail(Status status);

  UniqueFd socket_;
  Limits limits_;
  Status failure_;

  std::array<std::uint8_t, kHeaderBytes> header_{};
  std::size_t header_bytes_ = 0;
  std::size_t payload_bytes_ = 0;  // of the frame under way; 0 = its header is not complete
  Frame current_;
  std::vector<UniqueFd> loose_fds_;  // arrived, not claimed by a header yet
  std::deque<Frame> in_;
  std::size_t in_bytes_ = 0;
  std::size_t in_fds_ = 0;

  std::deque<Outgoing> out_;
  std::size_t out_bytes_ = 0;
};

}  // namespace plexrl::wire
