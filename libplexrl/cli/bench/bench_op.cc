// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_op.h"

#include <functional>

#include "cli/bench/bench_daemon.h"

namespace plexrl::cli {
namespace {

constexpr Duration kConnectTime{10 * kSecond.ns};

using Measurement = std::function<Result<LoadResult>(OpLoad&)>;

double median(std::vector<double> values) { return percentile(values, 50); }

// Each repeat on fresh connections.
Result<LoadResult> repeated(const client::ConnectTarget& target, std::uint64_t model,
                            const BenchOpOptions& options, const Measurement& measure) {
  std::vector<double> p50, p99, rate;
  for (std::uint32_t i = 0; i < options.repeats; ++i) {
    PLEXRL_ASSIGN(OpLoad load, OpLoad::connect(target, options.clients, model,
                                               system_clock().now() + kConnectTime));
    PLEXRL_ASSIGN(const LoadResult result, measure(load));
    p50.push_back(result.p50_us);
    p99.push_back(result.p99_us);
    rate.push_back(result.ops_per_s);
  }
  return LoadResult{median(p50), median(p99), median(rate)};
}

nlohmann::json row(const char* mode, const LoadResult& result, const BenchOpOptions& options,
                   double saturation) {
  return {{"bench", "op"},
          {"mode", mode},
          {"clients", options.clients},
          {"repeats", options.repeats},
          {"seconds", options.seconds},
          {"p50_us", result.p50_us},
          {"p99_us", result.p99_us},
          {"ops_per_s", result.ops_per_s},
          {"saturation_ops_per_s", saturation}};
}

Status check(const BenchOpOptions& o) {
  const bool good = o.clients > 0 && o.clients <= 1000 && o.repeats > 0 && o.saturation_depth > 0 &&
                    o.seconds > 0 && o.seconds <= 3600 && o.open_rate >= 1;
  if (good) return {};
  return error(Code::INVALID_ARGUMENT,
               "bench op: clients 1..1000, repeats, depth and seconds above 0");
}

}  // namespace

Result<nlohmann::json> measure_op(const client::ConnectTarget& target, std::uint64_t model,
                                  const BenchOpOptions& options) {
  PLEXRL_TRY(check(options));
  const Duration length{static_cast<std::int64_t>(options.seconds * 1e9)};
  PLEXRL_ASSIGN(const LoadResult closed, repeated(target, model, options, [&](OpLoad& load) {
                  return load.closed(1, length);
                }));
  PLEXRL_ASSIGN(const LoadResult open, repeated(target, model, options, [&](OpLoad& load) {
                  return load.open(options.open_rate, length);
                }));
  PLEXRL_ASSIGN(const LoadResult full, repeated(target, model, options, [&](OpLoad& load) {
                  return load.closed(options.saturation_depth, length);
                }));
  return nlohmann::json::array({row("closed", closed, options, full.ops_per_s),
                                row("open", open, options, full.ops_per_s),
                                row("saturation", full, options, full.ops_per_s)});
}

Result<nlohmann::json> bench_op(const BenchOpOptions& options) {
  PLEXRL_TRY(check(options));
  std::string program = options.plexrld;
  if (program.empty()) {
    PLEXRL_ASSIGN(program, find_plexrld());
  }
  PLEXRL_ASSIGN(const BenchDaemon daemon, BenchDaemon::start(program));
  return measure_op(daemon.target(), daemon.model(), options);
}

}  // namespace plexrl::cli
