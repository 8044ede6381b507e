// SPDX-License-Identifier: Apache-2.0
// Workload: a cluster, the kinds of jobs that arrive, and how. Plain values; workload_file.h reads
// them from YAML, workload_keys.h says what each means. Units are in the names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "core/placement.h"
#include "sim/distribution.h"

namespace plexrl::sim {

struct PoolSpec {
  std::string name;
  std::uint32_t gpus = 0;
  std::uint32_t gpus_per_node = 8;
  double host_gb_per_node = 2000;  // for parked state
  double device_gb = 80;           // of one GPU
  double activation_gb = 40;       // of it, for activations: not for state
  double copy_gb_per_s = 20;       // of one GPU, each way
  double move_latency_s = 0.5;     // of every move, beside the copy
};

struct JobSpec {
  std::string name;
  double weight = 1;  // of the arrivals
  Distribution steps = Distribution::constant(100);
  std::uint32_t lag = 1;  // steps that rollouts run ahead of training; 0: synchronous
  std::string rollout_pool;
  std::string train_pool;
  std::uint32_t rollout_gpus = 0;  // 0: rollouts run on the training group
  std::uint32_t train_gpus = 0;
  std::uint32_t rollout_sharers = 1;  // jobs on one group at most
  std::uint32_t train_sharers = 1;
  double parameters_b = 0;  // 10^9
  double train_bytes_per_parameter = 16;
  double rollout_bytes_per_parameter = 2;
  double commit_headroom = 1;  // of the state, in host memory; 0: commit: park (doc/state.md)
  double kv_gb = 0;            // of the whole rollout group, while a rollout is under way
  Distribution scale = Distribution::constant(1);  // of one job's rollouts, log-probs and training
  Distribution rollout_s;                          // device time per step
  std::uint32_t turns = 1;  // a rollout is interrupted by turns - 1 tool waits
  Distribution tool_s;      // each
  Distribution logprobs_s;  // on the training group
  Distribution train_s;
  std::uint32_t train_ops = 4;  // forward_backward calls of one step
  Distribution sync_s;          // weights to the rollout engine; on the training group
  double slowdown_bound = 0;    // 0: none
};

struct Published {
  std::string key;  // of the result, e.g. "device_hours_saved.split-async"
  double value = 0;
  std::string source;
};

struct Sensitivity {
  std::string key;  // "pools.train.copy_gb_per_s"
  std::vector<double> values;
  std::vector<double> factors;  // of the file's value
};

struct Workload {
  std::string name;
  std::string about;
  std::uint32_t seed = 1;
  std::string policy;     // empty: the default
  std::string placement;  // empty: the default
  double quantum_s = 10;  // as quantum_ms of plexrl.yaml(5)
  double yield_s = 0.05;  // from being asked to the next token boundary
  std::uint32_t jobs_total = 0;
  Distribution interarrival_s;
  // Offered loads: the mean time between arrivals is then worked out, so that jobs alone would use
  // so many times what the busiest pool has. Empty: interarrival_s as it is.
  std::vector<double> loads;
  double load = 0;    // of them the one of the headline
  std::string trace;  // a file beside the workload; then no arrivals are drawn
  std::vector<PoolSpec> pools;
  std::vector<JobSpec> jobs;
  std::vector<Published> published;
  std::vector<Sensitivity> sensitivity;

  [[nodiscard]] std::uint32_t pool_index(const std::string& name) const;  // pools.size(): none
};

constexpr double kGb = 1e9;
constexpr std::string_view kDefaultPolicy = "least-slowdown";
constexpr std::string_view kDefaultPlacement = "phase-aware";

[[nodiscard]] Duration duration_of(double seconds);
[[nodiscard]] inline double seconds_of(Duration d) { return static_cast<double>(d.ns) * 1e-9; }

// One side of a job on one group.
enum class RoleKind : std::uint8_t { kBoth, kRollout, kTrain };
struct RoleSpec {
  RoleKind kind = RoleKind::kBoth;
  std::uint32_t pool = 0;
  std::uint32_t gpus = 0;
  std::uint32_t sharers = 1;
  std::uint64_t device_bytes = 0;  // of the model, on the whole group
};
// One or two; rollouts first.
[[nodiscard]] std::vector<RoleSpec> roles_of(const Workload& workload, const JobSpec& job);
// To bring a model in or out without waiting for another move.
[[nodiscard]] Duration move_time(const PoolSpec& pool, std::uint32_t gpus, std::uint64_t bytes);
// The part of it that is the copy.
[[nodiscard]] Duration copy_time(const PoolSpec& pool, std::uint32_t gpus, std::uint64_t bytes);
// For models and KV.
[[nodiscard]] std::uint64_t device_capacity(const PoolSpec& pool, std::uint32_t gpus);

// What cannot work: pools that are not there, models that do not fit. All errors in one text.
[[nodiscard]] Status check_workload(const Workload& workload);

}  // namespace plexrl::sim
