// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/op_load.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>

#include "base/check.h"

namespace plexrl::cli {
namespace {

// After the measurement, for what is still under way.
constexpr Duration kGrace{10 * kSecond.ns};
// A sleeping thread is 30 to 80 us late on a virtual machine (2026-11), which is not the service's
// fault. So the open loop sleeps until so long before a request is due and asks for replies
// without sleeping from then on.
constexpr Duration kAwakeBefore{100'000};
constexpr std::uint64_t kTimer = UINT64_MAX;
constexpr int kEvents = 64;

double in_us(Duration d) { return static_cast<double>(d.ns) / 1e3; }

Status arm(int timer, TimePoint when) {
  itimerspec spec{};
  spec.it_value = {when.ns / kSecond.ns, when.ns % kSecond.ns};
  if (::timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, nullptr) == 0) return {};
  return errno_error(Code::IO, errno, "timerfd");
}

}  // namespace

double percentile(std::vector<double>& values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

LoadResult median_of(const std::vector<LoadResult>& results) {
  const auto median = [&](double LoadResult::*part) {
    std::vector<double> values;
    for (const LoadResult& result : results) values.push_back(result.*part);
    return percentile(values, 50);
  };
  return {median(&LoadResult::p50_us), median(&LoadResult::p99_us), median(&LoadResult::ops_per_s)};
}

double median_gbps(std::uint64_t bytes, std::vector<double> seconds) {
  return static_cast<double>(bytes) / percentile(seconds, 50) / 1e9;
}

double median_ratio(const std::vector<double>& raw, const std::vector<double>& own) {
  PLEXRL_CHECK(raw.size() == own.size(), "a ratio is that of a pair");
  std::vector<double> ratios;
  for (std::size_t i = 0; i < raw.size(); ++i) ratios.push_back(raw[i] / own[i]);
  return percentile(ratios, 50);
}

Result<OpLoad> OpLoad::create(std::vector<std::unique_ptr<LoadLink>> links) {
  PLEXRL_CHECK(!links.empty(), "a load has at least one connection");
  OpLoad load;
  load.poll_set_.reset(::epoll_create1(EPOLL_CLOEXEC));
  load.timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!load.poll_set_ || !load.timer_) return errno_error(Code::IO, errno, "epoll, timerfd");
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // armed again before each wait, never read
  event.data.u64 = kTimer;
  if (::epoll_ctl(load.poll_set_.get(), EPOLL_CTL_ADD, load.timer_.get(), &event) != 0)
    return errno_error(Code::IO, errno, "epoll");
  for (auto& link : links) {
    load.clients_.push_back({std::move(link), {}});
    PLEXRL_TRY(load.watch(load.clients_.size() - 1, EPOLL_CTL_ADD));
  }
  return load;
}

Result<OpLoad> OpLoad::connect(const client::ConnectTarget& target, std::uint32_t clients,
                               std::uint64_t model, TimePoint deadline) {
  std::vector<std::unique_ptr<LoadLink>> links;
  for (std::uint32_t i = 0; i < clients; ++i) {
    PLEXRL_ASSIGN(auto link, connect_op_link(target, model, deadline));
    links.push_back(std::move(link));
  }
  return create(std::move(links));
}

Status OpLoad::watch(std::size_t client, int operation) {
  Client& one = clients_[client];
  one.writes = one.link->wants_write();
  epoll_event event{};
  event.events = EPOLLIN | (one.writes ? std::uint32_t{EPOLLOUT} : 0U);
  event.data.u64 = client;
  if (::epoll_ctl(poll_set_.get(), operation, one.link->fd(), &event) == 0) return {};
  return errno_error(Code::IO, errno, "epoll");
}

Status OpLoad::send(std::size_t client, TimePoint due) {
  Client& one = clients_[client];
  const std::uint64_t id = ++last_id_;
  one.due.emplace(id, due);
  ++under_way_;
  PLEXRL_TRY(one.link->send(id));
  return one.writes == one.link->wants_write() ? Status() : watch(client, EPOLL_CTL_MOD);
}

Status OpLoad::receive(std::size_t client, Window& window, std::uint32_t* answered) {
  Client& one = clients_[client];
  answered_.clear();
  PLEXRL_TRY(one.link->receive(answered_));
  const TimePoint now = system_clock().now();
  for (const std::uint64_t id : answered_) {
    const auto it = one.due.find(id);
    if (it == one.due.end()) return error(Code::PROTOCOL, "a reply to no request");
    if (now >= window.from && now < window.until)
      window.latencies_us.push_back(in_us(now - it->second));
    one.due.erase(it);
  }
  *answered = static_cast<std::uint32_t>(answered_.size());
  under_way_ -= answered_.size();
  return one.writes == one.link->wants_write() ? Status() : watch(client, EPOLL_CTL_MOD);
}

Status OpLoad::wait(TimePoint until) {
  ready_.clear();
  const bool sleeps = system_clock().now() < until;
  if (sleeps) PLEXRL_TRY(arm(timer_.get(), until));
  std::array<epoll_event, kEvents> events;  // not initialised: filled by the kernel
  const int count = ::epoll_wait(poll_set_.get(), events.data(), kEvents, sleeps ? -1 : 0);
  if (count < 0 && errno != EINTR) return errno_error(Code::IO, errno, "epoll");
  for (int i = 0; i < count; ++i) {
    const std::uint64_t client = events[static_cast<std::size_t>(i)].data.u64;
    if (client != kTimer) ready_.push_back(client);
  }
  return {};
}

Status OpLoad::receive_ready(TimePoint until, Window& window) {
  PLEXRL_TRY(wait(until));
  std::uint32_t answered = 0;
  for (const std::size_t client : ready_) PLEXRL_TRY(receive(client, window, &answered));
  return {};
}

Status OpLoad::finish(Window& window) {
  const TimePoint deadline = system_clock().now() + kGrace;
  while (under_way_ > 0) {
    if (system_clock().now() >= deadline)
      return error(Code::TIMEOUT, "%zu operations were not answered", under_way_);
    PLEXRL_TRY(receive_ready(deadline, window));
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
    for (std::size_t c = 0; c < clients_.size(); ++c) PLEXRL_TRY(send(c, system_clock().now()));
  while (system_clock().now() < window.until) {
    PLEXRL_TRY(wait(window.until));
    for (const std::size_t client : ready_) {
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
  for (std::int64_t sent = 0; sent < total;) {
    const TimePoint due{start.ns +
                        static_cast<std::int64_t>(static_cast<double>(sent) * spacing_ns)};
    if (system_clock().now() >= due) {
      PLEXRL_TRY(send(static_cast<std::size_t>(sent) % clients_.size(), due));
      ++sent;
      continue;
    }
    PLEXRL_TRY(receive_ready({due.ns - kAwakeBefore.ns}, window));
  }
  PLEXRL_TRY(finish(window));
  window.until = system_clock().now();
  return summary(window);
}

}  // namespace plexrl::cli
