// SPDX-License-Identifier: Apache-2.0
// The Transport of tests: between Transports of one process, through memory, with faults on demand.
#pragma once

#include <functional>
#include <memory>

#include "transport/carrier.h"
#include "transport/transport.h"

namespace plexrl::transport {

// What connects them; an address is any name. Any thread. Lives as long as a carrier of it.
class LoopbackNet {
 public:
  enum class Fate : std::uint8_t {
    kPass,
    kDrop,  // as if it were lost
    kHold,  // until release()
    kCut,   // the link breaks, the message is lost
  };
  // Asked about each message, with a lock held: calls nothing of the net. `bytes`: of the payload.
  using Fault = std::function<Fate(std::string_view header, std::size_t bytes)>;

  virtual ~LoopbackNet() = default;
  virtual void set_fault(Fault fault) = 0;  // null: all pass
  virtual void release() = 0;               // in the order in which they were sent
  // Breaks all links.
  virtual void cut() = 0;
};
[[nodiscard]] std::shared_ptr<LoopbackNet> make_loopback_net();

[[nodiscard]] std::unique_ptr<Carrier> make_loopback_carrier(std::shared_ptr<LoopbackNet> net);
// INVALID_ARGUMENT: of `options`.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_loopback_transport(
    std::shared_ptr<LoopbackNet> net, Options options, Events events, Transport::Post post);

}  // namespace plexrl::transport
