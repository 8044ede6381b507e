// SPDX-License-Identifier: Apache-2.0
// Carrier: what a Transport stands on. It moves bytes between two ends of a link and knows nothing
// of their meaning: UCX or memory of this process. A link first carries frames (the handshake, in
// order), and from open() on messages, whose order is not promised.
//
// Used by one thread at a time, but for wake(). A Sink is called from inside turn() only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/strong_id.h"

namespace plexrl::transport {

using LinkId = StrongId<struct LinkTag>;  // one end of a link; never used twice by its carrier
inline constexpr std::size_t kMaxFrameBytes = 32U << 10;
inline constexpr std::size_t kMaxInlineBytes = 16U << 10;

class Carrier {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void accepted(LinkId link) = 0;   // somebody connected
    virtual void connected(LinkId link) = 0;  // connect() has reached the other end
    virtual void frame(LinkId link, std::string_view bytes) = 0;
    // A message whose payload came with it.
    virtual void message(LinkId link, std::string_view header, std::string_view payload) = 0;
    // A message with a payload of `bytes` that was sent as bulk: where it goes and the number to
    // report it by, or nothing to drop it.
    struct Landing {
      std::byte* at = nullptr;  // room for `bytes`
      std::uint64_t tag = 0;
    };
    virtual std::optional<Landing> bulk(LinkId link, std::string_view header,
                                        std::size_t bytes) = 0;
    virtual void landed(LinkId link, std::uint64_t tag, const Status& status) = 0;
    virtual void sent(LinkId link, std::uint64_t tag, const Status& status) = 0;
    // The other end is gone. Nothing more is said of the link, but close() it.
    virtual void broken(LinkId link, const Status& why) = 0;
  };

  // Closes all links.
  virtual ~Carrier() = default;
  [[nodiscard]] virtual Result<std::string> listen(const std::string& address) = 0;
  [[nodiscard]] virtual Result<LinkId> connect(const std::string& address) = 0;
  [[nodiscard]] virtual Status send_frame(LinkId link, std::string_view bytes) = 0;
  // What the other end's open() needs; of at most 8 KiB. Costs memory: after the peer is known.
  [[nodiscard]] virtual Result<std::string> local_address(LinkId link) = 0;
  [[nodiscard]] virtual Status open(LinkId link, std::string_view remote_address) = 0;
  // Header and payload (kMaxInlineBytes at most) are copied. An error is that of the link.
  [[nodiscard]] virtual Status send(LinkId link, std::string_view header,
                                    std::string_view payload) = 0;
  // The payload stays in place until sent(tag) or close().
  [[nodiscard]] virtual Status send_bulk(LinkId link, std::string_view header,
                                         std::span<const std::byte> payload, std::uint64_t tag) = 0;
  // When it returns, no memory of the link's landings and payloads is touched any more, and the
  // sink hears nothing more of it.
  virtual void close(LinkId link) = 0;

  // Registers memory for what is sent and landed later; `number` is the caller's.
  [[nodiscard]] virtual Status add_region(std::uint64_t number, std::span<std::byte> memory) = 0;
  virtual void remove_region(std::uint64_t number) = 0;

  // Does what is there, waits up to `timeout` for something when nothing is. Negative: no limit.
  virtual void turn(Sink& sink, Duration timeout) = 0;
  // Ends a wait of turn(), now or the next one. Any thread.
  virtual void wake() = 0;
  [[nodiscard]] virtual const std::string& method() const = 0;
};

}  // namespace plexrl::transport
