// SPDX-License-Identifier: Apache-2.0
// RunStats: what one simulated run came to. Sums only, so that a run of any length needs the memory
// of its live jobs; the slowdowns are kept as counts in steps of 0.1 %.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/clock.h"

namespace plexrl::sim {

struct JobOutcome {
  std::uint64_t number = 0;
  std::uint32_t spec = 0;  // index of its kind
  TimePoint arrival{};
  TimePoint start{};
  TimePoint end{};
  Duration alone{};        // as the workload says, nobody else there
  Duration split_async{};  // one step off, each side on its own devices
  Duration colocated{};
  std::uint32_t gpus = 0;  // alone and split-async
  std::uint32_t colocated_gpus = 0;
  double shared_gpus = 0;  // of the closed form: each role's GPUs / its sharers
  // GPU-seconds of each pool that no sharing can save: a role's device time, or its part of the
  // time alone when as many share as may.
  std::vector<double> least_gpu_s;

  [[nodiscard]] double slowdown() const;
};

struct GroupOutcome {
  Duration held{};  // while a job was on it
  Duration busy{};
  Duration exposed{};  // of moves
  std::uint32_t gpus = 0;
  bool trains = false;
};

class RunStats {
 public:
  void add(const JobOutcome& job);
  void add(const GroupOutcome& group);
  // In the order of arrival; `gpus` by pool. For the offline bound.
  void arrives(const JobOutcome& job, const std::vector<std::uint32_t>& gpus);
  void saw_host_bytes(std::uint64_t bytes_per_node);
  void saw_held_gpus(std::size_t pool, std::uint32_t gpus);

  std::uint64_t jobs = 0;
  double device_s = 0;  // GPU-seconds held
  double busy_s = 0;    // GPU-seconds
  double exposed_s = 0;
  double train_held_s = 0;  // of groups that train
  double train_busy_s = 0;
  double isolated_device_s = 0;  // the same jobs, each alone
  double split_async_device_s = 0;
  double colocated_device_s = 0;
  double shared_form_s = 0;  // of the closed form: GPU-seconds at full sharing without slowdown
  double queued_s = 0;       // from arrival to start, summed
  std::uint64_t host_bytes_peak = 0;
  std::vector<std::uint32_t> gpus_peak;  // held at once, by pool
  TimePoint first_arrival{};
  TimePoint last_end{};
  std::uint64_t scheduler_events = 0;

  [[nodiscard]] double makespan_s() const;
  // No schedule is done earlier, whatever it knows of the future: not before the job that is last
  // alone, and not before each pool has done at full sharing what arrived from any time on.
  [[nodiscard]] double offline_makespan_s() const;
  [[nodiscard]] double mean_slowdown() const;
  [[nodiscard]] double slowdown_quantile(double q) const;  // of jobs; exact to 0.1 %
  // Jain's index of the jobs' speeds against alone (1 / slowdown): 1 when all are slowed alike.
  [[nodiscard]] double jain() const;
  [[nodiscard]] double closed_form_bound() const;
  // Lower edge of a 0.1 % step, and jobs in it.
  [[nodiscard]] std::vector<std::pair<double, std::uint64_t>> slowdowns() const;

 private:
  double offline_end_s_ = 0;             // of the job that is last alone
  std::vector<double> pools_done_at_s_;  // as fluid queues
  double slowdown_sum_ = 0;
  double speed_sum_ = 0;
  double speed_squares_ = 0;
  std::map<int, std::uint64_t> slowdowns_;
};

}  // namespace plexrl::sim
