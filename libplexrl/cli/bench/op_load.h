// SPDX-License-Identifier: Apache-2.0
// OpLoad: load of many small exchanges over many connections from one thread, and what it measures.
// Latency is from the time a request was due to the decoded reply, so that a service that falls
// behind does not look fast. What the thread does between the two is on the account of the service,
// so it does little: it wakes for the connections that have something, and is awake already when a
// request falls due.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cli/bench/load_link.h"

namespace plexrl::cli {

struct LoadResult {
  double p50_us = 0;
  double p99_us = 0;
  double ops_per_s = 0;
};

// Part by part.
[[nodiscard]] LoadResult median_of(const std::vector<LoadResult>& results);
// Nearest-rank percentile, 0 < percent <= 100. Sorts `values`; 0 when there are none.
[[nodiscard]] double percentile(std::vector<double>& values, double percent);
// 10^9 bytes per second in the median of the times.
[[nodiscard]] double median_gbps(std::uint64_t bytes, std::vector<double> seconds);
// The median of raw[i] / own[i]: a pair is measured at nearly the same time, so that what else the
// machine does counts less than in a ratio of medians. As many of both.
[[nodiscard]] double median_ratio(const std::vector<double>& raw, const std::vector<double>& own);

class OpLoad {
 public:
  // At least one link.
  [[nodiscard]] static Result<OpLoad> create(std::vector<std::unique_ptr<LoadLink>> links);
  // `clients` operation links to one model.
  [[nodiscard]] static Result<OpLoad> connect(const client::ConnectTarget& target,
                                              std::uint32_t clients, std::uint64_t model,
                                              TimePoint deadline);

  // Closed loop: every connection has `depth` exchanges under way all the time. What ends in the
  // first tenth of `length` is not counted.
  [[nodiscard]] Result<LoadResult> closed(std::uint32_t depth, Duration length);
  // Open loop: `rate` exchanges per second, evenly spaced, whatever the answers do.
  [[nodiscard]] Result<LoadResult> open(double rate, Duration length);
  [[nodiscard]] ExchangeSizes sizes() const { return clients_.front().link->sizes(); }

 private:
  struct Client {
    std::unique_ptr<LoadLink> link;
    std::unordered_map<std::uint64_t, TimePoint> due;  // by id
    bool writes = false;                               // the poll set waits for room too
  };
  struct Window {
    TimePoint from, until;
    std::vector<double> latencies_us;
  };

  OpLoad() = default;
  [[nodiscard]] Status watch(std::size_t client, int operation);
  [[nodiscard]] Status send(std::size_t client, TimePoint due);
  // Takes the replies that have come to a client; the number of them goes to `answered`.
  [[nodiscard]] Status receive(std::size_t client, Window& window, std::uint32_t* answered);
  // Clients that have something, into ready_; waits until `until` for the first.
  [[nodiscard]] Status wait(TimePoint until);
  [[nodiscard]] Status receive_ready(TimePoint until, Window& window);
  // Until nothing is under way.
  [[nodiscard]] Status finish(Window& window);
  [[nodiscard]] static LoadResult summary(Window& window);

  std::uint64_t last_id_ = 1;  // 1 was Hello
  std::size_t under_way_ = 0;
  std::vector<Client> clients_;
  UniqueFd poll_set_;
  UniqueFd timer_;
  std::vector<std::size_t> ready_;
  std::vector<std::uint64_t> answered_;  // scratch of receive
};

}  // namespace plexrl::cli
