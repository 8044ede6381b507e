// SPDX-License-Identifier: Apache-2.0
// OpLoad: load of many small operations on one plexrld, over many connections from one thread, and
// what it measures. Latency is from the time a request was due to the decoded reply, so that a
// service that falls behind does not look fast.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/rpc_client.h"

namespace plexrl::cli {

struct LoadResult {
  double p50_us = 0;
  double p99_us = 0;
  double ops_per_s = 0;
};

// Nearest-rank percentile, 0 < percent <= 100. Sorts `values`; 0 when there are none.
[[nodiscard]] double percentile(std::vector<double>& values, double percent);

class OpLoad {
 public:
  // Connects `clients` times. The operations are generate calls of one token on `model`.
  [[nodiscard]] static Result<OpLoad> connect(const client::ConnectTarget& target,
                                              std::uint32_t clients, std::uint64_t model,
                                              TimePoint deadline);

  // Closed loop: every connection has `depth` operations under way all the time. What ends in the
  // first tenth of `length` is not counted.
  [[nodiscard]] Result<LoadResult> closed(std::uint32_t depth, Duration length);
  // Open loop: `rate` operations per second, evenly spaced, whatever the answers do.
  [[nodiscard]] Result<LoadResult> open(double rate, Duration length);

 private:
  struct Client {
    wire::Channel channel;
    std::unordered_map<std::uint64_t, TimePoint> due;  // by request id
  };
  struct Window {
    TimePoint from, until;
    std::vector<double> latencies_us;
  };

  explicit OpLoad(std::uint64_t model) : model_(model) {}
  [[nodiscard]] Status send(Client& client, TimePoint due);
  // Takes the replies that have come; the number of them per client goes to `answered`.
  [[nodiscard]] Status receive(Client& client, Window& window, std::uint32_t* answered);
  [[nodiscard]] Status wait(TimePoint until);
  // Until nothing is under way.
  [[nodiscard]] Status finish(Window& window);
  [[nodiscard]] std::size_t under_way() const;
  [[nodiscard]] static LoadResult summary(Window& window);

  std::uint64_t model_;
  std::uint64_t last_id_ = 1;  // 1 was Hello
  std::vector<Client> clients_;
};

}  // namespace plexrl::cli
