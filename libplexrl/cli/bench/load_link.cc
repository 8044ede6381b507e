// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/load_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace plexrl::cli {
namespace {

wire::SubmitOpT small_generate(std::uint64_t model) {
  wire::GenerateArgsT args;
  args.prompts.push_back(std::make_unique<wire::PromptT>());
  args.prompts[0]->tokens = {1};
  args.max_new_tokens = 1;
  wire::SubmitOpT submit;
  submit.model = model;
  submit.args.Set(std::move(args));
  return submit;
}

class OpLink final : public LoadLink {
 public:
  OpLink(wire::Channel channel, std::uint64_t model)
      : channel_(std::move(channel)), model_(model) {}

  [[nodiscard]] int fd() const override { return channel_.fd(); }
  [[nodiscard]] bool wants_write() const override { return channel_.wants_write(); }
  [[nodiscard]] ExchangeSizes sizes() const override { return sizes_; }
  [[nodiscard]] Status send(std::uint64_t id) override {
    auto payload = wire::encode(wire::message(id, small_generate(model_)));
    sizes_.request_bytes = wire::kHeaderBytes + payload.size();
    return channel_.send(std::move(payload));
  }
  [[nodiscard]] Status receive(std::vector<std::uint64_t>& answered) override {
    PLEXRL_TRY(channel_.flush());
    PLEXRL_TRY(channel_.receive());
    while (auto frame = channel_.next()) {
      PLEXRL_ASSIGN(wire::MessageT reply, wire::decode_message(frame->payload));
      if (const auto* failure = wire::body_as<wire::FailureT>(reply.body))
        return wire::from_failure(*failure).within("operation under load");
      sizes_.reply_bytes = wire::kHeaderBytes + frame->payload.size();
      answered.push_back(reply.request_id);
    }
    return {};
  }

 private:
  wire::Channel channel_;
  std::uint64_t model_;
  ExchangeSizes sizes_;
};

class RawLink final : public StreamLink {
 public:
  RawLink(UniqueFd socket, const ExchangeSizes& sizes)
      : StreamLink("raw exchange", std::move(socket), std::string(sizes.request_bytes, '\0')),
        reply_bytes_(sizes.reply_bytes) {}

 private:
  [[nodiscard]] Status take(std::string_view bytes, std::vector<std::size_t>& replies) override {
    for (come_ += bytes.size(); come_ >= reply_bytes_; come_ -= reply_bytes_)
      replies.push_back(reply_bytes_);
    return {};
  }

  std::size_t reply_bytes_;
  std::size_t come_ = 0;  // of the reply that is not complete
};

}  // namespace

Status StreamLink::send(std::uint64_t id) {
  const ssize_t sent =
      ::send(socket_.get(), request_.data(), request_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno_error(Code::IO, errno, "%s: send", name_);
  if (static_cast<std::size_t>(sent) != request_.size())
    return error(Code::IO, "%s: the socket is full", name_);
  under_way_.push_back(id);
  return {};
}

Status StreamLink::receive(std::vector<std::uint64_t>& answered) {
  std::array<char, 65536> bytes;  // not initialised: filled by the kernel
  const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (got < 0) return errno_error(Code::IO, errno, "%s: receive", name_);
  if (got == 0) return error(Code::UNAVAILABLE, "%s: the other end has closed", name_);
  replies_.clear();
  PLEXRL_TRY(take({bytes.data(), static_cast<std::size_t>(got)}, replies_));
  for (const std::size_t size : replies_) {
    if (under_way_.empty()) return error(Code::PROTOCOL, "%s: a reply to no request", name_);
    reply_bytes_ = size;
    answered.push_back(under_way_.front());
    under_way_.pop_front();
  }
  return {};
}

Result<std::unique_ptr<LoadLink>> connect_op_link(const client::ConnectTarget& target,
                                                  std::uint64_t model, TimePoint deadline) {
  PLEXRL_ASSIGN(client::RpcClient connection, client::RpcClient::connect(target, deadline));
  return std::unique_ptr<LoadLink>(
      std::make_unique<OpLink>(std::move(connection).release_channel(), model));
}

std::unique_ptr<LoadLink> make_raw_link(UniqueFd socket, const ExchangeSizes& sizes) {
  return std::make_unique<RawLink>(std::move(socket), sizes);
}

}  // namespace plexrl::cli
