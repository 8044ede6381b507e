// SPDX-License-Identifier: Apache-2.0
// Traces: jobs as JSON lines (plexrl-sim(5)). The first line is {"plexrl_trace": 1}; each further
// one is a job in the order of arrival, read when it is due.
#pragma once

#include <iosfwd>
#include <memory>

#include "sim/job_source.h"

namespace plexrl::sim {

constexpr std::size_t kMaxTraceLine = std::size_t{16} << 20;
constexpr std::size_t kMaxTraceOps = 200'000;  // of one job

// INVALID_ARGUMENT names file and line: not JSON, too long, a number out of range, a kind that the
// workload does not have, an arrival before the last one's. The workload and the stream outlive the
// source.
[[nodiscard]] std::unique_ptr<JobSource> trace_jobs(const Workload& workload, std::uint64_t seed,
                                                    std::istream& in, std::string file_name);

// The lines of a trace.
[[nodiscard]] std::string trace_header();
struct TraceJob {
  double arrival_s = 0;
  std::string kind;
  std::uint64_t model_bytes = 0;
  std::vector<ScriptOp> ops;
};
[[nodiscard]] std::string trace_line(const TraceJob& job);

// "generate", ...; empty for a kind that has no name.
[[nodiscard]] std::string_view op_name(core::OpKind kind);

}  // namespace plexrl::sim
