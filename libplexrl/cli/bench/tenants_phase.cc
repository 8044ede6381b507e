// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/tenants_phase.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/child_program.h"

namespace plexrl::cli {
namespace {

constexpr Duration kStartTime{300 * kSecond.ns};  // of a daemon with large pools, and of a base
constexpr std::uint32_t kWarmUpJob = 1;           // tasks have the numbers after it
constexpr std::uint32_t kChunkKib = 256;
constexpr std::uint64_t kMib = 1ULL << 20;
constexpr std::uint64_t kSpareMib = 64;

// What the jobs and the device need, in MiB; generous, as nothing is to be moved here.
struct Sizes {
  std::uint64_t job_host = 0, host = 0, device = 0, activation = 0;
};

enum class Mode : std::uint8_t { kLora, kFull };

Sizes sizes_of(const TenantsSite& site, const ModelShape& shape, Mode mode) {
  const std::uint64_t trained =
      mode == Mode::kLora ? shape.lora_parameters(site.lora_rank) : shape.parameters();
  const std::uint64_t segment = trained * sizeof(float);
  const std::uint64_t position = 2ULL * shape.layers * shape.kv_size() * sizeof(float);
  const std::uint64_t kv = std::uint64_t{site.prompts} * site.samples * 64 * position;
  Sizes sizes;
  // Weights, both moments, sampler weights and gradients; all but those twice in host memory.
  sizes.job_host = (9 * segment + kv) / kMib + 8;
  sizes.host = sizes.job_host * (site.tenants + 1) + kSpareMib;
  sizes.device = (shape.parameters() * sizeof(float) + site.tenants * (5 * segment + kv)) / kMib +
                 4ULL * site.tenants + kSpareMib;
  sizes.activation = shape.hidden > 256 ? 1024 : 256;
  return sizes;
}

std::string site_text(const TenantsSite& site, const ModelShape& shape, const Sizes& sizes) {
  return "pools:\n"
         "  - name: bench\n"
         "    partition: bench\n"
         "    nodes: benchnode\n"
         "    models: [" +
         site.model.name +
         "]\n"
         "    train_modes: [lora, full]\n"
         "    policy: " +
         site.policy + "\n    host_memory_mib: " + std::to_string(sizes.host) +
         "\n    device_memory_mib: " + std::to_string(sizes.device + sizes.activation) +
         "\n    activation_memory_mib: " + std::to_string(sizes.activation) + "\nmodels:\n" +
         site_model(shape, site.model.name, site.model.directory);
}

class Phase {
 public:
  static Result<Phase> start(const TenantsSite& site, Mode mode);
  // The engine starts and the base is loaded with the first model.
  Status warm_up();
  Result<PhaseResult> run(const TenantsPhase& phase);
  // The weights after a supervised start, in the file.
  Status teach(const std::string& weights);

 private:
  Phase(const TenantsSite& site, Mode mode, Sizes sizes, BenchDaemon daemon)
      : site_(site), mode_(mode), sizes_(sizes), daemon_(std::move(daemon)) {}
  // `plexrl train` with these options besides what all have.
  Result<ChildProgram> start_training(std::uint32_t job, const std::vector<std::string>& options);
  Result<ChildProgram> start_task(std::uint32_t job, const TenantsPhase& phase,
                                  std::uint32_t steps);
  Result<double> busy_s();
  Status read_task(std::uint32_t job, PhaseResult& result) const;
  [[nodiscard]] std::string file(std::uint32_t job, const char* what) const {
    return daemon_.directory() + "/" + what + "." + std::to_string(job);
  }

  const TenantsSite& site_;
  Mode mode_;
  Sizes sizes_;
  BenchDaemon daemon_;
};

Result<Phase> Phase::start(const TenantsSite& site, Mode mode) {
  PLEXRL_ASSIGN(const ModelShape shape, shape_of(site.model));
  const Sizes sizes = sizes_of(site, shape, mode);
  BenchSite pools;
  pools.text = [&](const std::string&) { return site_text(site, shape, sizes); };
  pools.chunk_kib = kChunkKib;
  pools.base_directory = site.model.directory;
  PLEXRL_ASSIGN(auto daemon, BenchDaemon::launch(site.plexrld, pools));
  return Phase(site, mode, sizes, std::move(daemon));
}

Status Phase::warm_up() {
  PLEXRL_ASSIGN(auto task, start_task(kWarmUpJob, {}, 1));
  return task.wait().within("warm-up");
}

Result<ChildProgram> Phase::start_training(std::uint32_t job,
                                           const std::vector<std::string>& options) {
  const bool lora = mode_ == Mode::kLora;
  const std::string grant =
      "v1:pool=bench:share=" + std::to_string(std::max(1U, 100 / (site_.tenants + 1))) +
      ":mem=" + std::to_string(sizes_.job_host) + ":mode=" + (lora ? "lora" : "full") +
      ":rank=" + std::to_string(lora ? site_.lora_rank : 0) +
      ":slowdown=0:models=" + site_.model.name;
  PLEXRL_ASSIGN(const auto target, daemon_.open_job(job, grant, system_clock().now() + kStartTime));
  std::vector<std::string> words = {site_.plexrl, "train",  "--env",
                                    "sort",       "--seed", std::to_string(job)};
  words.insert(words.end(), options.begin(), options.end());
  return ChildProgram::start(std::move(words), file(job, "task"),
                             {"PLEXRL_SOCKET=" + target.socket, "PLEXRL_TOKEN=" + target.token});
}

Result<ChildProgram> Phase::start_task(std::uint32_t job, const TenantsPhase& phase,
                                       std::uint32_t steps) {
  return start_training(job, {"--steps",
                              std::to_string(steps),
                              "--prompts",
                              std::to_string(site_.prompts),
                              "--samples",
                              std::to_string(site_.samples),
                              "--minibatches",
                              "1",
                              "--eval-prompts",
                              "0",
                              "--tool-latency",
                              std::to_string(phase.wait_s),
                              "--tool-latency-sd",
                              std::to_string(phase.wait_sd_s),
                              "--max-staleness",
                              std::to_string(phase.staleness),
                              "--log",
                              file(job, "steps"),
                              "--summary",
                              file(job, "summary")});
}

Status Phase::teach(const std::string& weights) {
  PLEXRL_ASSIGN(auto task,
                start_training(kWarmUpJob,
                               {"--steps", "0", "--sft-steps", "2000", "--sft-target", "0.4",
                                "--eval-prompts", "64", "--save", weights, "--format", "weights"}));
  return task.wait().within("supervised start");
}

Result<double> Phase::busy_s() {
  const TimePoint deadline = system_clock().now() + kStartTime;
  PLEXRL_ASSIGN(auto watcher,
                client::RpcClient::connect_when_up({daemon_.socket(), "", "bench"}, deadline));
  wire::QueryT request;
  request.kind = wire::QueryKind::Status;
  PLEXRL_ASSIGN(const wire::JsonT reply, watcher.call<wire::JsonT>(request, deadline));
  return nlohmann::json::parse(reply.text).at("times").at("busy_s").get<double>();
}

Result<PhaseResult> Phase::run(const TenantsPhase& phase) {
  PhaseResult result;
  PLEXRL_ASSIGN(const double before, busy_s());
  const TimePoint start = system_clock().now();
  std::vector<ChildProgram> tasks;
  for (std::uint32_t task = 1; task <= phase.tasks; ++task) {
    PLEXRL_ASSIGN(auto started, start_task(kWarmUpJob + task, phase, site_.steps));
    tasks.push_back(std::move(started));
    if (!phase.together) PLEXRL_TRY(tasks.back().wait());
  }
  if (phase.together)
    for (ChildProgram& task : tasks) PLEXRL_TRY(task.wait());
  result.wall_s = static_cast<double>((system_clock().now() - start).ns) / 1e9;
  PLEXRL_ASSIGN(const double after, busy_s());
  result.busy_s = after - before;
  for (std::uint32_t task = 1; task <= phase.tasks; ++task)
    PLEXRL_TRY(read_task(kWarmUpJob + task, result));
  return result;
}

Status Phase::read_task(std::uint32_t job, PhaseResult& result) const {
  std::ifstream lines(file(job, "steps"));
  std::vector<double> rewards;
  for (std::string line; std::getline(lines, line);) {
    const auto step = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (step.is_object() && step.value("phase", "") == "grpo")
      rewards.push_back(step.at("reward").get<double>());
  }
  if (rewards.size() != site_.steps)
    return error(Code::INTERNAL, "task %u logged %zu of %u steps", job - kWarmUpJob, rewards.size(),
                 site_.steps);
  std::ifstream file_of_summary(file(job, "summary"));
  const auto summary = nlohmann::json::parse(file_of_summary, nullptr, false);
  if (!summary.is_object())
    return error(Code::INTERNAL, "task %u wrote no summary", job - kWarmUpJob);
  result.rewards.push_back(std::accumulate(rewards.begin(), rewards.end(), 0.0) /
                           static_cast<double>(rewards.size()));
  result.train_s += summary.at("wall_s").get<double>();
  return {};
}

}  // namespace

Result<BenchModel> teach(const TenantsSite& site, const std::string& folder) {
  const std::string weights = folder + "/taught.safetensors";
  {
    PLEXRL_ASSIGN(Phase phase, Phase::start(site, Mode::kFull));
    PLEXRL_TRY(phase.teach(weights));
  }
  BenchModel taught{site.model.name, folder + "/taught"};
  PLEXRL_TRY(run_program({site.plexrl, "model", "export", weights, taught.directory, "--base",
                          site.model.directory, "--format", "hf"},
                         folder + "/log"));
  return taught;
}

Result<PhaseResult> run_phase(const TenantsSite& site, const TenantsPhase& phase) {
  PLEXRL_ASSIGN(Phase started, Phase::start(site, Mode::kLora));
  PLEXRL_TRY(started.warm_up());
  return started.run(phase);
}

}  // namespace plexrl::cli
