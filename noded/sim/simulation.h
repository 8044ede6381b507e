// SPDX-License-Identifier: Apache-2.0
// simulate: one run of a workload in virtual time, under the daemon's own scheduler and placement.
// The same workload, options and seed give the same run. Memory is linear in the jobs that are
// under way or queued.
#pragma once

#include <functional>
#include <string>

#include "sim/job_source.h"
#include "sim/run_stats.h"
#include "sim/sim_group.h"

namespace plexrl::sim {

// What happened, as it happens; for a report.
class RunObserver : public GroupObserver {
 public:
  virtual void group_opened(std::uint64_t group, const RoleSpec& role, TimePoint at) = 0;
  virtual void group_closed(std::uint64_t group, TimePoint at) = 0;
  virtual void queue_is(std::size_t jobs, TimePoint at) = 0;
  virtual void ended(const JobOutcome& job) = 0;
};

struct RunOptions {
  std::string policy;  // of the groups' schedulers
  std::string placement;
  std::uint64_t seed = 1;
  double load = 0;  // 0: arrivals as the workload says
  RunObserver* observer = nullptr;
  // Jobs done and the virtual time; false cancels the run. Called about 100 times a second.
  std::function<bool(std::uint64_t jobs, TimePoint now)> progress;
};

// INVALID_ARGUMENT: an unknown policy; NO_CAPACITY: a job that fits nowhere; CANCELLED; an error of
// the source. The jobs come from `source`.
[[nodiscard]] Result<RunStats> simulate(const Workload& workload, const RunOptions& options,
                                        JobSource& source);

}  // namespace plexrl::sim
