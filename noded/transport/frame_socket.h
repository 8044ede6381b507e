// SPDX-License-Identifier: Apache-2.0
// FrameSocket: frames (four bytes of length, little-endian, then so many bytes) over a TCP socket
// that does not block. Part of the UCX carrier: the handshake goes over it, and as long as it is
// open the other process lives. One thread.
#pragma once

#include <functional>

#include "base/unique_fd.h"
#include "transport/carrier.h"

namespace plexrl::transport {

// "host:port" in numbers. The second is the address with the port that was chosen.
[[nodiscard]] Result<std::pair<UniqueFd, std::string>> listen_on(const std::string& address);

class FrameSocket {
 public:
  // A connection that was accepted.
  explicit FrameSocket(UniqueFd fd) : fd_(std::move(fd)), connected_(true) {}
  // Begun; it is there when flush() has succeeded and connected() says so.
  [[nodiscard]] static Result<FrameSocket> connect_to(const std::string& address);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] bool wants_write() const { return !connected_ || !out_.empty(); }
  // Takes all or nothing. UNAVAILABLE: the peer reads nothing, or is gone.
  [[nodiscard]] Status send(std::string_view bytes);
  // Goes on with what is not written yet.
  [[nodiscard]] Status flush();
  // Reads what is there; each whole frame is given to `take`. UNAVAILABLE: the peer is gone.
  // PROTOCOL: a frame is too long.
  [[nodiscard]] Status receive(const std::function<void(std::string_view)>& take);
  // What was sent still arrives.
  void end_sending();

 private:
  FrameSocket(UniqueFd fd, bool connected) : fd_(std::move(fd)), connected_(connected) {}
  UniqueFd fd_;
  bool connected_ = false;
  std::string in_;
  std::string out_;
};

}  // namespace plexrl::transport
