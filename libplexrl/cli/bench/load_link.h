// SPDX-License-Identifier: Apache-2.0
// LoadLink: one connection that a load is sent over. Two kinds: operations of a plexrld, and
// messages of the same sizes to a RawEcho, which shows what the sockets and process switches cost
// alone. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "client/rpc_client.h"

namespace plexrl::cli {

// On the socket, frame headers included.
struct ExchangeSizes {
  std::size_t request_bytes = 0;
  std::size_t reply_bytes = 0;
};

class LoadLink {
 public:
  virtual ~LoadLink() = default;
  // Non-blocking; the link keeps it open.
  [[nodiscard]] virtual int fd() const = 0;
  [[nodiscard]] virtual bool wants_write() const = 0;
  // Begins one exchange. `id` is above every earlier one.
  [[nodiscard]] virtual Status send(std::uint64_t id) = 0;
  // Takes what has come and writes what has waited; ids whose reply is complete go to `answered`.
  [[nodiscard]] virtual Status receive(std::vector<std::uint64_t>& answered) = 0;
  // Of the last exchange; zero before it.
  [[nodiscard]] virtual ExchangeSizes sizes() const = 0;
};

// Generate calls of one token on `model`; a reply counts when it is decoded.
[[nodiscard]] Result<std::unique_ptr<LoadLink>> connect_op_link(const client::ConnectTarget& target,
                                                                std::uint64_t model,
                                                                TimePoint deadline);
// Over one of RawEcho's sockets. Replies come in order.
[[nodiscard]] std::unique_ptr<LoadLink> make_raw_link(UniqueFd socket, const ExchangeSizes& sizes);

}  // namespace plexrl::cli
