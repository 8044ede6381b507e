// SPDX-License-Identifier: Apache-2.0
#include "sim/job_source.h"

#include <algorithm>

#include "sim/alone.h"

namespace plexrl::sim {
namespace {

class GeneratedJobs final : public JobSource {
 public:
  GeneratedJobs(const Workload& workload, std::uint64_t seed, double load)
      : workload_(workload), seed_(seed), gap_(workload.interarrival_s) {
    if (load > 0) {
      if (gap_.is_zero()) {
        gap_.kind = Distribution::Kind::kExponential;
        gap_.value = 1;
      }
      gap_.scale *= mean_gap(workload, load) / gap_.mean();
    }
    for (const JobSpec& job : workload.jobs) total_weight_ += job.weight;
  }

  [[nodiscard]] Result<std::optional<ArrivingJob>> next() override {
    if (number_ == workload_.jobs_total) return std::optional<ArrivingJob>();
    ++number_;
    Draws gap(seed_, number_, DrawFor::kArrival);
    if (number_ > 1) arrival_ = arrival_ + duration_of(gap_.draw(gap));
    ArrivingJob job;
    job.arrival = arrival_;
    job.spec = kind_of(number_);
    job.draw = draw_job(workload_.jobs[job.spec], seed_, number_);
    return std::optional(job);
  }
  [[nodiscard]] std::uint64_t expected_jobs() const override { return workload_.jobs_total; }

 private:
  [[nodiscard]] std::uint32_t kind_of(std::uint64_t number) const {
    Draws draws(seed_, number, DrawFor::kClass);
    double left = draws.uniform() * total_weight_;
    for (std::uint32_t kind = 0; kind + 1 < workload_.jobs.size(); ++kind)
      if ((left -= workload_.jobs[kind].weight) < 0) return kind;
    return static_cast<std::uint32_t>(workload_.jobs.size() - 1);
  }

  const Workload& workload_;
  std::uint64_t seed_;
  Distribution gap_;
  double total_weight_ = 0;
  std::uint64_t number_ = 0;
  TimePoint arrival_{};
};

}  // namespace

double mean_gap(const Workload& workload, double load) {
  std::vector<double> gpu_seconds(workload.pools.size());
  double weights = 0;
  for (const JobSpec& job : workload.jobs) {
    const double run = seconds_of(mean_step(job, workload.seed, own_layout(workload, job))) *
                       std::max(job.steps.mean(), 1.0);
    for (const RoleSpec& role : roles_of(workload, job))
      gpu_seconds[role.pool] += job.weight * run * role.gpus;
    weights += job.weight;
  }
  double gap = 0;
  for (std::size_t pool = 0; pool < gpu_seconds.size(); ++pool)
    gap = std::max(gap, gpu_seconds[pool] / weights / (load * workload.pools[pool].gpus));
  return gap;
}

std::unique_ptr<JobSource> generated_jobs(const Workload& workload, std::uint64_t seed,
                                          double load) {
  return std::make_unique<GeneratedJobs>(workload, seed, load);
}

}  // namespace plexrl::sim
