// SPDX-License-Identifier: Apache-2.0
#include "sim/trace.h"

#include <sstream>

#include "unit/sim/sim_fixture.h"

namespace plexrl::sim {
namespace {

const std::string kHeader = "{\"plexrl_trace\": 1}\n";

Workload workload() {
  Workload made = small_workload(0);
  JobSpec recorded = made.jobs[0];
  recorded.name = "recorded";
  recorded.rollout_gpus = 0;
  recorded.lag = 0;
  made.jobs.push_back(recorded);
  return made;
}

Result<std::vector<ArrivingJob>> read(const Workload& of, const std::string& text) {
  std::istringstream in(text);
  const auto source = trace_jobs(of, 1, in, "t.jsonl");
  std::vector<ArrivingJob> jobs;
  for (;;) {
    PLEXRL_ASSIGN(std::optional<ArrivingJob> job, source->next());
    if (!job) return jobs;
    jobs.push_back(std::move(*job));
  }
}

std::string error_of(const std::string& line) {
  const auto jobs = read(workload(), kHeader + line + "\n");
  return jobs ? "" : jobs.error().text();
}

TEST(Trace, IsRead) {
  const Workload of = workload();
  const auto jobs =
      read(of, kHeader + R"({"arrival_s": 1.5, "kind": "rl", "steps": 7, "scale": 2})" + "\n\n" +
                   R"({"arrival_s": 2, "kind": "recorded", "model_bytes": 1000, "ops": )"
                   R"([["generate", 0, 0.5, 3, 10], ["optim_step", 1, 0, 1, 0]]})");
  ASSERT_TRUE(jobs) << jobs.error().to_string();
  ASSERT_EQ(jobs->size(), 2U);
  EXPECT_EQ((*jobs)[0].draw.steps, 7U);
  EXPECT_EQ((*jobs)[0].draw.scale, 2);
  EXPECT_EQ((*jobs)[1].arrival.ns, 2 * kSecond.ns);
  EXPECT_EQ((*jobs)[1].script_bytes, 1000U);
  ASSERT_EQ((*jobs)[1].script.size(), 2U);
  EXPECT_EQ((*jobs)[1].script[1].after, 1U);
}

TEST(Trace, WhatIsWrittenIsRead) {
  TraceJob job{3, "recorded", 77, {}};
  job.ops.push_back({core::OpKind::kLogprobs, 0, duration_of(1), duration_of(2), 5});
  const auto jobs = read(workload(), trace_header() + trace_line(job));
  ASSERT_TRUE(jobs) << jobs.error().to_string();
  ASSERT_EQ(jobs->size(), 1U);
  EXPECT_EQ(jobs->front().script.at(0).kind, core::OpKind::kLogprobs);
  EXPECT_EQ(jobs->front().script[0].time.ns, 2 * kSecond.ns);
}

TEST(Trace, HostileLinesAreErrorsWithTheirPlace) {
  EXPECT_NE(error_of("{").find("t.jsonl:2: "), std::string::npos);
  EXPECT_NE(error_of("[1]"), "");
  EXPECT_NE(error_of(R"({"kind": "none"})"), "");
  EXPECT_NE(error_of(R"({"kind": 3})"), "");
  EXPECT_NE(error_of(R"({"kind": "rl", "arrival_s": -1})"), "");
  EXPECT_NE(error_of(R"({"kind": "rl", "arrival_s": 1e300})"), "");
  EXPECT_NE(error_of(R"({"kind": "rl", "steps": "many"})"), "");
  EXPECT_NE(error_of(R"({"kind": "rl", "ops": [["generate", 0, 0, 1, 0]]})"), "") << "two groups";
  EXPECT_NE(error_of(R"({"kind": "recorded", "ops": [["generate", 1, 0, 1, 0]]})"), "")
      << "after itself";
  EXPECT_NE(error_of(R"({"kind": "recorded", "ops": [["dance", 0, 0, 1, 0]]})"), "");
  EXPECT_NE(error_of(R"({"kind": "recorded", "ops": []})"), "");
  EXPECT_NE(error_of(R"({"kind": "rl", "other": 1})"), "");
  EXPECT_NE(error_of(std::string(100000, '[')), "");
  EXPECT_NE(error_of("\"" + std::string(kMaxTraceLine + 1, 'x')), "");
  EXPECT_FALSE(read(workload(), "{\"plexrl_trace\": 2}\n"));
  EXPECT_FALSE(read(workload(), ""));
  EXPECT_FALSE(read(workload(), kHeader + "{\"kind\": \"rl\", \"arrival_s\": 5}\n" +
                                    "{\"kind\": \"rl\", \"arrival_s\": 4}\n"));
}

TEST(Trace, AScriptThatDoesNotFitEndsTheRun) {
  const Workload of = workload();
  std::istringstream in(kHeader + R"({"kind": "recorded", "model_bytes": 1e14, "ops": )"
                                  R"([["generate", 0, 0, 1, 0]]})");
  const auto source = trace_jobs(of, 1, in, "t.jsonl");
  EXPECT_EQ(simulate(of, options("pack"), *source).error().code(), Code::NO_CAPACITY);
}

}  // namespace
}  // namespace plexrl::sim
