// SPDX-License-Identifier: Apache-2.0
// A small cluster and one kind of job, for tests of the simulator.
#pragma once

#include <gtest/gtest.h>

#include "sim/simulation.h"

namespace plexrl::sim {

// 8 GPUs of training and 8 of rollouts in one pool of two nodes; one kind of job, "rl".
inline Workload small_workload(std::uint32_t jobs, std::uint32_t lag = 1) {
  Workload workload;
  workload.name = "small";
  PoolSpec pool;
  pool.name = "all";
  pool.gpus = 64;
  pool.move_latency_s = 0.1;
  workload.pools.push_back(pool);
  JobSpec job;
  job.name = "rl";
  job.steps = Distribution::constant(20);
  job.lag = lag;
  job.rollout_pool = job.train_pool = "all";
  job.rollout_gpus = 4;
  job.train_gpus = 8;
  job.train_sharers = 2;
  job.parameters_b = 7;
  job.rollout_s = {Distribution::Kind::kLognormal, 100, 0.3};
  job.tool_s = Distribution::constant(3);
  job.logprobs_s = Distribution::constant(4);
  job.train_s = {Distribution::Kind::kLognormal, 20, 0.1};
  job.sync_s = Distribution::constant(2);
  workload.jobs.push_back(job);
  workload.jobs_total = jobs;
  return workload;
}

inline RunOptions options(std::string placement, std::string policy = "round-robin") {
  RunOptions options;
  options.policy = std::move(policy);
  options.placement = std::move(placement);
  return options;
}

inline Result<RunStats> try_run(const Workload& workload, const RunOptions& options) {
  const auto source = generated_jobs(workload, options.seed, options.load);
  return simulate(workload, options, *source);
}

inline RunStats run(const Workload& workload, const RunOptions& options) {
  EXPECT_TRUE(check_workload(workload).ok()) << check_workload(workload).to_string();
  Result<RunStats> stats = try_run(workload, options);
  EXPECT_TRUE(stats) << stats.error().to_string();
  return stats ? *stats : RunStats{};
}

}  // namespace plexrl::sim
