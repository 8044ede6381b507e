// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_op.h"

#include <functional>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/raw_echo.h"

namespace plexrl::cli {
namespace {

constexpr Duration kConnectTime{10 * kSecond.ns};

// The raw exchange is a check beside the measurement, so it gets less of the time.
constexpr int kRawPart = 4;

using Measurement = std::function<Result<LoadResult>(OpLoad&, Duration length)>;

// The operations, and the raw exchanges of the same load and sizes.
struct Measured {
  LoadResult op;
  LoadResult raw;
};

Result<LoadResult> measure_raw(std::uint32_t clients, const ExchangeSizes& sizes,
                               const Measurement& measure, Duration length) {
  PLEXRL_ASSIGN(RawEcho echo, RawEcho::start(clients, sizes));
  std::vector<std::unique_ptr<LoadLink>> links;
  for (UniqueFd& socket : echo.take_sockets())
    links.push_back(make_raw_link(std::move(socket), sizes));
  PLEXRL_ASSIGN(OpLoad load, OpLoad::create(std::move(links)));
  return measure(load, length);
}

// Each repeat on fresh connections, and the raw one right after it, so that other load on the
// machine hits both.
Result<Measured> repeated(const client::ConnectTarget& target, std::uint64_t model,
                          const BenchOpOptions& options, const Measurement& measure) {
  const Duration length{static_cast<std::int64_t>(options.seconds * 1e9)};
  std::vector<LoadResult> op, raw;
  for (std::uint32_t i = 0; i < options.repeats; ++i) {
    PLEXRL_ASSIGN(OpLoad load, OpLoad::connect(target, options.clients, model,
                                               system_clock().now() + kConnectTime));
    PLEXRL_ASSIGN(const LoadResult result, measure(load, length));
    op.push_back(result);
    PLEXRL_ASSIGN(const LoadResult floor, measure_raw(options.clients, load.sizes(), measure,
                                                      Duration{length.ns / kRawPart}));
    raw.push_back(floor);
  }
  return Measured{median_of(op), median_of(raw)};
}

nlohmann::json row(const char* mode, const Measured& measured, const BenchOpOptions& options,
                   double saturation) {
  return {{"bench", "op"},
          {"mode", mode},
          {"clients", options.clients},
          {"repeats", options.repeats},
          {"seconds", options.seconds},
          {"p50_us", measured.op.p50_us},
          {"p99_us", measured.op.p99_us},
          {"ops_per_s", measured.op.ops_per_s},
          {"raw_p50_us", measured.raw.p50_us},
          {"raw_p99_us", measured.raw.p99_us},
          {"raw_ops_per_s", measured.raw.ops_per_s},
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
  const auto at_depth = [](std::uint32_t depth) {
    return [depth](OpLoad& load, Duration length) { return load.closed(depth, length); };
  };
  const auto at_rate = [&](OpLoad& load, Duration length) {
    return load.open(options.open_rate, length);
  };
  PLEXRL_ASSIGN(const Measured closed, repeated(target, model, options, at_depth(1)));
  PLEXRL_ASSIGN(const Measured open, repeated(target, model, options, at_rate));
  PLEXRL_ASSIGN(const Measured full,
                repeated(target, model, options, at_depth(options.saturation_depth)));
  const double saturation = full.op.ops_per_s;
  return nlohmann::json::array({row("closed", closed, options, saturation),
                                row("open", open, options, saturation),
                                row("saturation", full, options, saturation)});
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
