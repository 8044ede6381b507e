// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/op_load.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

namespace plexrl::cli {
namespace {

// After the measurement, for what is still under way.
constexpr Duration kGrace{10 * kSecond.ns};

double in_us(Duration d) { return static_cast<double>(d.ns) / 1e3; }

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

timespec to_timespec(Duration d) {
  const std::int64_t ns = std::max<std::int64_t>(d.ns, 0);
  return {ns / kSecond.ns, ns % kSecond.ns};
}

}  // namespace

double percentile(std::vector<double>& values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

Result<OpLoad> OpLoad::connect(const client::ConnectTarget& target, std::uint32_t clients,
                               std::uint64_t model, TimePoint deadline) {
  OpLoad load(model);
  for (std::uint32_t i = 0; i < clients; ++i) {
    PLEXRL_ASSIGN(client::RpcClient connection, client::RpcClient::connect(target, deadline));
    load.clients_.push_back({std::move(connection).release_channel(), {}});
  }
  return load;
}

Status OpLoad::send(Client& client, TimePoint due) {
  const std::uint64_t id = ++last_id_;
  client.due.emplace(id, due);
  return client.channel.send(wire::encode(wire::message(id, small_generate(model_))));
}

Status OpLoad::receive(Client& client, Window& window, std::uint32_t* answered) {
  PLEXRL_TRY(client.channel.flush());
  PLEXRL_TRY(client.channel.receive());
  while (auto frame = client.channel.next()) {
    PLEXRL_ASSIGN(wire::MessageT reply, wire::decode_message(frame->payload));
    if (const auto* failure = wire::body_as<wire::FailureT>(reply.body))
      return wire::from_failure(*failure).within("operation under load");
    const TimePoint now = system_clock().now();
    const auto it = client.due.find(reply.request_id);
    if (it == client.due.end()) return error(Code::PROTOCOL, "a reply to no request");
    if (now >= window.from && now < window.until)
      window.latencies_us.push_back(in_us(now - it->second));
    client.due.erase(it);
    ++*answered;
  }
  return {};
}

Status OpLoad::wait(TimePoint until) {
  std::vector<pollfd> fds;
  fds.reserve(clients_.size());
  for (const Client& client : clients_) {
    const int events = POLLIN | (client.channel.wants_write() ? POLLOUT : 0);
    fds.push_back({client.channel.fd(), static_cast<short>(events), 0});
  }
  const timespec timeout = to_timespec(until - system_clock().now());
  if (::ppoll(fds.data(), fds.size(), &timeout, nullptr) < 0 && errno != EINTR)
    return errno_error(Code::IO, errno, "poll");
  return {};
}

std::size_t OpLoad::under_way() const {
  std::size_t count = 0;
  for (const Client& client : clients_) count += client.due.size();
  return count;
}

Status OpLoad::finish(Window& window) {
  const TimePoint deadline = system_clock().now() + kGrace;
  std::uint32_t answered = 0;
  while (under_way() > 0) {
    if (system_clock().now() >= deadline)
      return error(Code::TIMEOUT, "%zu operations were not answered", under_way());
    PLEXRL_TRY(wait(deadline));
    for (Client& client : clients_) PLEXRL_TRY(receive(client, window, &answered));
  }
  return {};
}

LoadResult OpLoad::summary(Window& window) {
  const double seconds = in_us(window.until - window.from) / 1e6;
  const auto count = static_cast<double>(window.latencies_us.size());
  return {percentile(window.latencies_us, 50), percentile(window.latencies_us, 99),
          count / seconds};
}

Result<LoadResult> OpLoad::closed(std::uint32_t depth, Duration length) {
  const TimePoint start = system_clock().now();
  Window window{start + Duration{length.ns / 10}, start + length, {}};
  for (std::uint32_t i = 0; i < depth; ++i)
    for (Client& client : clients_) PLEXRL_TRY(send(client, system_clock().now()));
  while (system_clock().now() < window.until) {
    PLEXRL_TRY(wait(window.until));
    for (Client& client : clients_) {
      std::uint32_t answered = 0;
      PLEXRL_TRY(receive(client, window, &answered));
      for (; answered > 0; --answered) PLEXRL_TRY(send(client, system_clock().now()));
    }
  }
  PLEXRL_TRY(finish(window));
  return summary(window);
}

Result<LoadResult> OpLoad::open(double rate, Duration length) {
  const TimePoint start = system_clock().now();
  const auto total = static_cast<std::int64_t>(rate * static_cast<double>(length.ns) / 1e9);
  const double spacing_ns = 1e9 / rate;
  // Until the last answer: every operation counts.
  Window window{start, start + length + kGrace, {}};
  std::uint32_t answered = 0;
  for (std::int64_t sent = 0; sent < total;) {
    const TimePoint due{start.ns +
                        static_cast<std::int64_t>(static_cast<double>(sent) * spacing_ns)};
    if (system_clock().now() >= due) {
      PLEXRL_TRY(send(clients_[static_cast<std::size_t>(sent) % clients_.size()], due));
      ++sent;
      continue;
    }
    PLEXRL_TRY(wait(due));
    for (Client& client : clients_) PLEXRL_TRY(receive(client, window, &answered));
  }
  PLEXRL_TRY(finish(window));
  window.until = system_clock().now();
  return summary(window);
}

}  // namespace plexrl::cli
