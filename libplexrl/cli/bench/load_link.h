// SPDX-License-Identifier: Apache-2.0
// LoadLink: one connection that a load is sent over. Three kinds: operations of a plexrld, requests
// of HTTP (http_link.h), and messages of the same sizes to a RawEcho, which shows what the sockets
// and process switches cost alone. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
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

// The same bytes in every exchange, over a stream socket; replies come in order.
class StreamLink : public LoadLink {
 public:
  // `name` begins every error.
  StreamLink(const char* name, UniqueFd socket, std::string request)
      : name_(name), socket_(std::move(socket)), request_(std::move(request)) {}
  [[nodiscard]] int fd() const override { return socket_.get(); }
  [[nodiscard]] bool wants_write() const override { return false; }
  [[nodiscard]] ExchangeSizes sizes() const override { return {request_.size(), reply_bytes_}; }
  [[nodiscard]] Status send(std::uint64_t id) override;
  [[nodiscard]] Status receive(std::vector<std::uint64_t>& answered) override;

 protected:
  // Takes `bytes`, the next ones of the replies; the sizes of those that are complete by now go to
  // `replies`.
  [[nodiscard]] virtual Status take(std::string_view bytes, std::vector<std::size_t>& replies) = 0;

 private:
  const char* name_;
  UniqueFd socket_;
  std::string request_;
  std::size_t reply_bytes_ = 0;  // of the last reply
  std::deque<std::uint64_t> under_way_;
  std::vector<std::size_t> replies_;  // scratch of receive
};

// Generate calls of one token on `model`; a reply counts when it is decoded.
[[nodiscard]] Result<std::unique_ptr<LoadLink>> connect_op_link(const client::ConnectTarget& target,
                                                                std::uint64_t model,
                                                                TimePoint deadline);
// Over one of RawEcho's sockets. Replies come in order.
[[nodiscard]] std::unique_ptr<LoadLink> make_raw_link(UniqueFd socket, const ExchangeSizes& sizes);

}  // namespace plexrl::cli
