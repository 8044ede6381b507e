// SPDX-License-Identifier: Apache-2.0
// `plexrl bench http`: what HTTP adds to an operation of plexrld, measured with its fake engine.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench/op_load.h"

namespace plexrl::cli {

struct BenchHttpOptions {
  std::string plexrld;                           // empty: find_plexrld()
  std::vector<std::uint32_t> clients = {1, 64};  // connections, each with one request under way
  std::uint32_t repeats = 3;                     // medians over them are reported
  double seconds = 2;                            // of each measurement
  bool json = false;
};

// One flat row per route and number of clients: route, clients, repeats, seconds, p50_us, p99_us,
// requests_per_s. "/v1/completions", one token by the fake engine, has besides op_p50_us,
// op_p99_us, the same op by libplexrl's protocol measured in turn with it, and overhead_p50_us,
// overhead_p99_us, the medians of the differences. "/health" is a request without an op.
[[nodiscard]] Result<nlohmann::json> bench_http(const BenchHttpOptions& options);

// The measurement alone, on a service that is there. `socket`: its http.sock.
[[nodiscard]] Result<nlohmann::json> measure_http(const client::ConnectTarget& target,
                                                  const std::string& socket, std::uint64_t model,
                                                  const std::string& model_name,
                                                  const BenchHttpOptions& options);

}  // namespace plexrl::cli
