// SPDX-License-Identifier: Apache-2.0
#include "sim/run_stats.h"

#include <algorithm>
#include <cmath>

namespace plexrl::sim {
namespace {

const double kStep = std::log(1.001);

double seconds(Duration d) { return static_cast<double>(d.ns) * 1e-9; }

}  // namespace

double JobOutcome::slowdown() const {
  const double alone_s = seconds(alone);
  return alone_s > 0 ? seconds(end - start) / alone_s : 1;
}

void RunStats::add(const JobOutcome& job) {
  if (jobs == 0 || job.arrival < first_arrival) first_arrival = job.arrival;
  last_end = std::max(last_end, job.end);
  ++jobs;
  const double alone_s = seconds(job.alone);
  isolated_device_s += alone_s * job.gpus;
  split_async_device_s += seconds(job.split_async) * job.gpus;
  colocated_device_s += seconds(job.colocated) * job.colocated_gpus;
  shared_form_s += alone_s * job.shared_gpus;
  queued_s += seconds(job.start - job.arrival);
  const double slowdown = job.slowdown();
  slowdown_sum_ += slowdown;
  speed_sum_ += 1 / slowdown;
  speed_squares_ += 1 / (slowdown * slowdown);
  ++slowdowns_[static_cast<int>(std::floor(std::log(slowdown) / kStep + 1e-6))];
}

void RunStats::add(const GroupOutcome& group) {
  const double held = seconds(group.held) * group.gpus;
  const double busy = seconds(group.busy) * group.gpus;
  device_s += held;
  busy_s += busy;
  exposed_s += seconds(group.exposed) * group.gpus;
  if (!group.trains) return;
  train_held_s += held;
  train_busy_s += busy;
}

void RunStats::arrives(const JobOutcome& job, const std::vector<std::uint32_t>& gpus) {
  const double arrival = static_cast<double>(job.arrival.ns) * 1e-9;
  offline_end_s_ = std::max(offline_end_s_, arrival + seconds(job.alone));
  pools_done_at_s_.resize(gpus.size());
  for (std::size_t pool = 0; pool < job.least_gpu_s.size(); ++pool)
    if (job.least_gpu_s[pool] > 0)
      pools_done_at_s_[pool] =
          std::max(pools_done_at_s_[pool], arrival) + job.least_gpu_s[pool] / gpus[pool];
}

double RunStats::offline_makespan_s() const {
  double end = offline_end_s_;
  for (const double done : pools_done_at_s_) end = std::max(end, done);
  return end - static_cast<double>(first_arrival.ns) * 1e-9;
}

void RunStats::saw_host_bytes(std::uint64_t bytes_per_node) {
  host_bytes_peak = std::max(host_bytes_peak, bytes_per_node);
}

void RunStats::saw_held_gpus(std::size_t pool, std::uint32_t gpus) {
  if (gpus_peak.size() <= pool) gpus_peak.resize(pool + 1);
  gpus_peak[pool] = std::max(gpus_peak[pool], gpus);
}

double RunStats::makespan_s() const { return jobs == 0 ? 0 : seconds(last_end - first_arrival); }

double RunStats::mean_slowdown() const {
  return jobs == 0 ? 1 : slowdown_sum_ / static_cast<double>(jobs);
}

double RunStats::slowdown_quantile(double q) const {
  const auto rank = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(jobs)));
  std::uint64_t seen = 0;
  for (const auto& [bin, count] : slowdowns_)
    if ((seen += count) >= rank) return std::exp(bin * kStep);
  return 1;
}

double RunStats::jain() const {
  return speed_squares_ > 0 ? speed_sum_ * speed_sum_ / (static_cast<double>(jobs) * speed_squares_)
                            : 1;
}

double RunStats::closed_form_bound() const {
  return isolated_device_s > 0 ? 1 - shared_form_s / isolated_device_s : 0;
}

std::vector<std::pair<double, std::uint64_t>> RunStats::slowdowns() const {
  std::vector<std::pair<double, std::uint64_t>> bins;
  for (const auto& [bin, count] : slowdowns_) bins.emplace_back(std::exp(bin * kStep), count);
  return bins;
}

}  // namespace plexrl::sim
