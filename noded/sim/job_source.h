// SPDX-License-Identifier: Apache-2.0
// JobSource: the jobs of a run, one after the other in the order of arrival.
#pragma once

#include <optional>
#include <vector>

#include "sim/script_job.h"
#include "sim/step_times.h"

namespace plexrl::sim {

struct ArrivingJob {
  TimePoint arrival{};
  std::uint32_t spec = 0;  // index of its kind
  JobDraw draw;
  std::vector<ScriptOp> script;    // not empty: these ops instead of the kind's
  std::uint64_t script_bytes = 0;  // of its model; 0: as its kind
};

class JobSource {
 public:
  virtual ~JobSource() = default;
  // None at the end. An error ends the run.
  [[nodiscard]] virtual Result<std::optional<ArrivingJob>> next() = 0;
  [[nodiscard]] virtual std::uint64_t expected_jobs() const = 0;  // 0: unknown
};

// Draws kinds, gaps and jobs. `load` > 0: the mean gap is such that all jobs alone would use so
// many times what the busiest pool has. The workload outlives the source.
[[nodiscard]] std::unique_ptr<JobSource> generated_jobs(const Workload& workload,
                                                        std::uint64_t seed, double load);
// Seconds between arrivals for that load.
[[nodiscard]] double mean_gap(const Workload& workload, double load);

}  // namespace plexrl::sim
