// SPDX-License-Identifier: Apache-2.0
#include "sim/workload_keys.h"

#include <algorithm>
#include <cmath>

namespace plexrl::sim {
namespace {

constexpr double kMany = 1e7;
constexpr double kSeconds = 1e8;

// Rows: name, field, required, min, max, doc.
const WorkloadKey<Workload> kWorkload[] = {
    {"name", &Workload::name, true, 0, 0, "Name of the workload."},
    {"about", &Workload::about, false, 0, 0, "What it is, in a sentence."},
    {"seed", &Workload::seed, false, 0, 4294967295.0, "Everything random follows from it."},
    {"policy", &Workload::policy, false, 0, 0, "Policy of the groups' schedulers."},
    {"placement", &Workload::placement, false, 0, 0, "Placement policy."},
    {"quantum_s", &Workload::quantum_s, false, 0.001, 3600,
     "Time after which a rollout makes way while others wait, as quantum_ms of plexrl.yaml."},
    {"yield_s", &Workload::yield_s, false, 0, 60,
     "Time from the request to make way to the next token boundary."},
    {"jobs_total", &Workload::jobs_total, false, 0, kMany, "Jobs that arrive."},
    {"interarrival_s", &Workload::interarrival_s, false, 0, 0, "Time between arrivals."},
    {"loads", &Workload::loads, false, 0.01, 100,
     "Offered loads: the mean time between arrivals is set so that all jobs, each alone on its "
     "devices, would use so many times what the busiest pool has."},
    {"load", &Workload::load, false, 0, 100, "The load of the headline figures."},
    {"trace", &Workload::trace, false, 0, 0,
     "File of a trace, beside the workload file; its jobs take the place of drawn ones."},
};

const WorkloadKey<PoolSpec> kPool[] = {
    {"name", &PoolSpec::name, true, 0, 0, "What jobs name it by."},
    {"gpus", &PoolSpec::gpus, true, 1, kMany, "GPUs, a multiple of gpus_per_node."},
    {"gpus_per_node", &PoolSpec::gpus_per_node, false, 1, 1024, "GPUs of one node."},
    {"host_gb_per_node", &PoolSpec::host_gb_per_node, false, 0, 1e6,
     "Host memory of a node for parked state, in 10^9 bytes."},
    {"device_gb", &PoolSpec::device_gb, false, 0.001, 1e5, "Memory of one GPU, in 10^9 bytes."},
    {"activation_gb", &PoolSpec::activation_gb, false, 0, 1e5,
     "Part of it that is kept free of state, for activations."},
    {"copy_gb_per_s", &PoolSpec::copy_gb_per_s, false, 0.001, 1e5,
     "Bandwidth between one GPU and the host, each way."},
    {"move_latency_s", &PoolSpec::move_latency_s, false, 0, 3600,
     "Time of every move of state beside the copy."},
};

const WorkloadKey<JobSpec> kJob[] = {
    {"name", &JobSpec::name, true, 0, 0, "Name of the kind."},
    {"weight", &JobSpec::weight, false, 0, 1e6, "Its part of the arrivals."},
    {"steps", &JobSpec::steps, false, 0, 0, "Steps of a job."},
    {"lag", &JobSpec::lag, false, 0, 16,
     "Steps that rollouts may run ahead of training; 0 is synchronous."},
    {"rollout_pool", &JobSpec::rollout_pool, false, 0, 0, "Pool of the rollouts."},
    {"train_pool", &JobSpec::train_pool, true, 0, 0, "Pool of the training."},
    {"rollout_gpus", &JobSpec::rollout_gpus, false, 0, kMany,
     "GPUs of the rollouts; 0: they run on the training group."},
    {"train_gpus", &JobSpec::train_gpus, true, 1, kMany, "GPUs of the training."},
    {"rollout_sharers", &JobSpec::rollout_sharers, false, 1, 64,
     "Jobs that may share the rollout group; 1 is private."},
    {"train_sharers", &JobSpec::train_sharers, false, 1, 64,
     "Jobs that may share the training group."},
    {"parameters_b", &JobSpec::parameters_b, true, 0, 1e5, "Parameters of the model, in 10^9."},
    {"train_bytes_per_parameter", &JobSpec::train_bytes_per_parameter, false, 0, 64,
     "State on the training group."},
    {"rollout_bytes_per_parameter", &JobSpec::rollout_bytes_per_parameter, false, 0, 64,
     "Weights on the rollout group."},
    {"commit_headroom", &JobSpec::commit_headroom, false, 0, 1,
     "Host memory for commits, as a part of the state; 0: state is committed when it is parked."},
    {"kv_gb", &JobSpec::kv_gb, false, 0, 1e6,
     "KV cache of a rollout on all of its GPUs, in 10^9 bytes."},
    {"scale", &JobSpec::scale, false, 0, 0,
     "Drawn once per job; multiplies its rollouts, log-probs and training."},
    {"rollout_s", &JobSpec::rollout_s, false, 0, 0, "Device time of a step's rollout."},
    {"turns", &JobSpec::turns, false, 1, 1000,
     "Turns of a rollout, with a tool wait between two; the rollout group is free meanwhile."},
    {"tool_s", &JobSpec::tool_s, false, 0, 0, "A tool wait."},
    {"logprobs_s", &JobSpec::logprobs_s, false, 0, 0,
     "Log-probs and the like, on the training group."},
    {"train_s", &JobSpec::train_s, true, 0, 0, "Training of a step."},
    {"train_ops", &JobSpec::train_ops, false, 1, 1000, "forward_backward calls of a step."},
    {"sync_s", &JobSpec::sync_s, false, 0, 0,
     "Bringing new weights to the rollouts; occupies the training group."},
    {"slowdown_bound", &JobSpec::slowdown_bound, false, 0, 100,
     "Bound on the job's slowdown; phase-aware placement shares as far as it allows. 0: none of "
     "its own."},
};

const WorkloadKey<Published> kPublished[] = {
    {"key", &Published::key, true, 0, 0, "The figure of the result that it is compared with."},
    {"value", &Published::value, true, -1e9, 1e9, "What was published."},
    {"source", &Published::source, true, 0, 0, "Where, and against what."},
};

const WorkloadKey<Sensitivity> kSensitivity[] = {
    {"key", &Sensitivity::key, true, 0, 0,
     "The number to change: a key of the file, pools.NAME.KEY or jobs.NAME.KEY; the name * is "
     "all."},
    {"values", &Sensitivity::values, false, 0, 1e9, "What to set it to, one run each."},
    {"factors", &Sensitivity::factors, false, 0, 1e6,
     "What to multiply the file's value by, one run each."},
};

Status no_key(const std::string& key) {
  return error(Code::INVALID_ARGUMENT, "sensitivity: '%s' is not a number of the workload",
               key.c_str());
}

template <class Section>
Status set(Section& section, std::span<const WorkloadKey<Section>> keys, const std::string& name,
           double value, bool factor) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return name == key.name; });
  if (found == keys.end()) return no_key(name);
  if (auto* const number = std::get_if<double Section::*>(&found->field)) {
    const double before = section.*(*number);
    section.*(*number) = std::clamp(factor ? before * value : value, found->min, found->max);
    return {};
  }
  if (auto* const count = std::get_if<std::uint32_t Section::*>(&found->field)) {
    const double wanted = std::round(factor ? section.*(*count) * value : value);
    section.*(*count) = static_cast<std::uint32_t>(std::clamp(wanted, found->min, found->max));
    return {};
  }
  auto* const spread = std::get_if<Distribution Section::*>(&found->field);
  if (spread == nullptr) return no_key(name);
  if (factor) {
    (section.*(*spread)).scale *= value;
  } else {
    section.*(*spread) = Distribution::constant(value);
  }
  return {};
}

template <class Section>
Status set_in(std::vector<Section>& sections, std::span<const WorkloadKey<Section>> keys,
              const std::string& path, double value, bool factor) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return no_key(path);
  bool found = false;
  for (Section& section : sections) {
    if (path.substr(0, dot) != "*" && path.substr(0, dot) != section.name) continue;
    found = true;
    PLEXRL_TRY(set(section, keys, path.substr(dot + 1), value, factor));
  }
  return found ? Status() : no_key(path);
}

}  // namespace

std::span<const WorkloadKey<Workload>> workload_keys() { return kWorkload; }
std::span<const WorkloadKey<PoolSpec>> pool_keys() { return kPool; }
std::span<const WorkloadKey<JobSpec>> job_keys() { return kJob; }
std::span<const WorkloadKey<Published>> published_keys() { return kPublished; }
std::span<const WorkloadKey<Sensitivity>> sensitivity_keys() { return kSensitivity; }

Status override_key(Workload& workload, const std::string& key, double value, bool factor) {
  if (key.starts_with("pools."))
    return set_in(workload.pools, pool_keys(), key.substr(6), value, factor);
  if (key.starts_with("jobs."))
    return set_in(workload.jobs, job_keys(), key.substr(5), value, factor);
  return set(workload, workload_keys(), key, value, factor);
}

}  // namespace plexrl::sim
