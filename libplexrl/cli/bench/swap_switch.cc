// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/swap_switch.h"

#include <array>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/bench_model.h"
#include "cli/bench/op_load.h"
#include "cli/bench/swap_copy.h"

namespace plexrl::cli {
namespace {

constexpr Duration kStartTime{300 * kSecond.ns};  // 6 GiB of pools on a busy machine
constexpr Duration kOpTime{300 * kSecond.ns};
constexpr std::uint64_t kRawBytes = std::uint64_t{256} << 20;
// Weights and both moments, float32: what a step changes and what the next one needs.
constexpr std::uint64_t kBytesPerParameter = 12;
constexpr std::uint64_t kDeviceMib = 2400, kActivationMib = 256, kHostMib = 4608;
constexpr std::uint64_t kEnginesMib = 1536;  // two processes with LibTorch

constexpr std::uint32_t kVocabulary = 32000, kPositions = 64;
constexpr std::array<ModelShape, 2> kShapes = {
    {{"15M", 288, 6, 6, 6, 768, kVocabulary, kPositions},
     {"100M", 768, 12, 12, 4, 2048, kVocabulary, kPositions}}};

// Appended to the part of a site file that all benchmarks share.
std::string site_text(const std::string& directory) {
  std::string names, models;
  for (const ModelShape& s : kShapes) {
    names += std::string(names.empty() ? "" : ", ") + "m" + s.name;
    models += site_model(s, std::string("m") + s.name, directory + "/" + s.name);
  }
  return "pools:\n"
         "  - name: bench\n"
         "    partition: bench\n"
         "    nodes: benchnode\n"
         "    models: [" +
         names +
         "]\n"
         "    train_modes: [full]\n"
         "    policy: fifo\n"
         "    host_memory_mib: " +
         std::to_string(kHostMib) + "\n    device_memory_mib: " + std::to_string(kDeviceMib) +
         "\n    activation_memory_mib: " + std::to_string(kActivationMib) + "\nmodels:\n" + models;
}

Status make_models(const std::string& engine, const std::string& directory) {
  for (const ModelShape& shape : kShapes) PLEXRL_TRY(make_model(engine, directory, shape));
  return {};
}

// One of the two jobs, with its model.
struct Job {
  client::RpcClient connection;
  std::uint64_t model = 0;
  std::uint64_t seq = 0;
  std::uint64_t state_bytes = 0;
};

struct Step {
  double run_s = 0;
  double exposed_s = 0, hidden_s = 0;
  double commit_stall_s = 0;
};

Result<nlohmann::json> query(client::RpcClient& connection, wire::QueryKind kind,
                             std::uint32_t job_id) {
  wire::QueryT request;
  request.kind = kind;
  request.job_id = job_id;
  PLEXRL_ASSIGN(const wire::JsonT reply,
                connection.call<wire::JsonT>(request, system_clock().now() + kOpTime));
  return nlohmann::json::parse(reply.text);
}

class SwitchBench {
 public:
  static Result<SwitchBench> start(const std::string& plexrld);
  // A training step of job `at`; what it waited for.
  Result<Step> step(std::size_t at);
  // Until no commit is being copied.
  Status quiet();
  [[nodiscard]] std::uint64_t bytes() const { return jobs_[0].state_bytes + jobs_[1].state_bytes; }

 private:
  explicit SwitchBench(BenchDaemon daemon, client::RpcClient watcher)
      : daemon_(std::move(daemon)), watcher_(std::move(watcher)) {}
  Status open_job(std::size_t at);
  template <class Args>
  Result<double> run(Job& job, Args args);
  Result<std::array<double, 3>> times(std::size_t at);

  BenchDaemon daemon_;
  client::RpcClient watcher_;
  std::vector<Job> jobs_;
};

Result<SwitchBench> SwitchBench::start(const std::string& plexrld) {
  PLEXRL_ASSIGN(const std::string engine, find_engine(plexrld));
  BenchSite site;
  site.text = site_text;
  site.prepare = [&](const std::string& directory) { return make_models(engine, directory); };
  PLEXRL_ASSIGN(auto daemon, BenchDaemon::launch(plexrld, site));
  PLEXRL_ASSIGN(auto watcher,
                client::RpcClient::connect_when_up({daemon.socket(), "", "bench"},
                                                   system_clock().now() + kStartTime));
  SwitchBench bench(std::move(daemon), std::move(watcher));
  for (std::size_t at = 0; at < kShapes.size(); ++at)
    PLEXRL_TRY(bench.open_job(at).within(std::string("job of ") + kShapes[at].name));
  return bench;
}

Status SwitchBench::open_job(std::size_t at) {
  const ModelShape& shape = kShapes[at];
  const TimePoint deadline = system_clock().now() + kStartTime;
  // State and shadow of weights, moments and sampler weights; gradients once; whole chunks.
  const std::uint64_t mib = (shape.parameters() * 36 >> 20) + 32;
  const std::string name = std::string("m") + shape.name;
  PLEXRL_ASSIGN(const auto target,
                daemon_.open_job(static_cast<std::uint32_t>(at + 1),
                                 "v1:pool=bench:share=50:mem=" + std::to_string(mib) +
                                     ":mode=full:rank=0:slowdown=0:models=" + name,
                                 deadline));
  PLEXRL_ASSIGN(auto connection, client::RpcClient::connect(target, deadline));
  wire::CreateModelT create;
  create.name = "bench";
  create.base = name;
  create.mode = wire::TrainMode::Full;
  PLEXRL_ASSIGN(const wire::ModelInfoT info,
                connection.call<wire::ModelInfoT>(std::move(create), deadline));
  jobs_.push_back(
      {std::move(connection), info.model, 0, info.trainable_parameters * kBytesPerParameter});
  return {};
}

// Seconds that the op ran.
template <class Args>
Result<double> SwitchBench::run(Job& job, Args args) {
  wire::SubmitOpT submit;
  submit.model = job.model;
  submit.seq = ++job.seq;
  submit.args.Set(std::move(args));
  PLEXRL_ASSIGN(const wire::OpReplyT reply, job.connection.template call<wire::OpReplyT>(
                                                std::move(submit), system_clock().now() + kOpTime));
  return reply.timing ? static_cast<double>(reply.timing->run_ns) / 1e9 : 0;
}

// Exposed and hidden time of the device group, commit stall of the job.
Result<std::array<double, 3>> SwitchBench::times(std::size_t at) {
  PLEXRL_ASSIGN(const auto status, query(watcher_, wire::QueryKind::Status, 0));
  PLEXRL_ASSIGN(const auto report,
                query(watcher_, wire::QueryKind::Report, static_cast<std::uint32_t>(at + 1)));
  const auto& device = status.at("times");
  return std::array{device.at("switch_exposed_s").get<double>(),
                    device.at("switch_hidden_s").get<double>(),
                    report.at("commit_stall_s").get<double>()};
}

Result<Step> SwitchBench::step(std::size_t at) {
  PLEXRL_ASSIGN(const auto before, times(at));
  wire::ForwardBackwardArgsT forward;
  forward.loss = wire::LossKind::CrossEntropy;
  auto datum = std::make_unique<wire::DatumT>();
  for (std::int32_t token = 1; token <= 16; ++token) {
    datum->tokens.push_back(token);
    datum->target_tokens.push_back(token + 1);
    datum->weights.push_back(1);
  }
  forward.data.push_back(std::move(datum));
  Step step;
  PLEXRL_ASSIGN(const double forward_s, run(jobs_[at], std::move(forward)));
  wire::OptimStepArgsT optim;
  optim.learning_rate = 1e-4;
  PLEXRL_ASSIGN(const double optim_s, run(jobs_[at], std::move(optim)));
  PLEXRL_ASSIGN(const auto after, times(at));
  step.run_s = forward_s + optim_s;
  step.exposed_s = after[0] - before[0];
  step.hidden_s = after[1] - before[1];
  step.commit_stall_s = after[2] - before[2];
  return step;
}

Status SwitchBench::quiet() {
  const TimePoint deadline = system_clock().now() + kOpTime;
  for (;;) {
    PLEXRL_ASSIGN(const auto status, query(watcher_, wire::QueryKind::Status, 0));
    bool copying = false;
    for (const auto& model : status.at("memory").at("models"))
      copying = copying || model.at("copying").get<bool>();
    if (!copying) return {};
    if (system_clock().now() >= deadline)
      return error(Code::TIMEOUT, "a commit does not come to its end");
    const timespec pause{0, 20 * kMillisecond.ns};
    ::nanosleep(&pause, nullptr);
  }
}

double median(std::vector<double>& values) { return percentile(values, 50); }

// The switches to one of the models.
struct Series {
  std::vector<double> exposed, hidden, raw, stall, run;
  void add(const Step& step, double raw_s) {
    exposed.push_back(step.exposed_s);
    hidden.push_back(step.hidden_s);
    stall.push_back(step.commit_stall_s);
    run.push_back(step.run_s);
    raw.push_back(raw_s);
  }
};

}  // namespace

std::uint64_t switch_memory_bytes() {
  return (kDeviceMib + kHostMib + kEnginesMib + 2 * (kRawBytes >> 20)) << 20;
}

Result<std::vector<SwitchCost>> measure_switches(const std::string& plexrld,
                                                 std::uint32_t repeats) {
  PLEXRL_ASSIGN(SwapCopy copy, SwapCopy::create(kRawBytes));
  PLEXRL_ASSIGN(SwitchBench bench, SwitchBench::start(plexrld));
  // The first steps initialise the models.
  for (const std::size_t at : {0, 1}) PLEXRL_TRY(bench.step(at).status());
  std::array<Series, 2> all;
  for (std::uint32_t i = 0; i < repeats; ++i) {
    for (const std::size_t to : {0, 1}) {
      PLEXRL_TRY(bench.quiet());
      const double raw_s = copy.raw_copy_s(kRawBytes);
      // Right after a step of the other one, whose changes are still being committed.
      PLEXRL_TRY(bench.step(1 - to).status());
      PLEXRL_ASSIGN(const Step step, bench.step(to));
      all[to].add(step,
                  raw_s * static_cast<double>(bench.bytes()) / static_cast<double>(kRawBytes));
    }
  }
  std::vector<SwitchCost> costs;
  for (const std::size_t to : {0, 1}) {
    Series& series = all[to];
    costs.push_back({kShapes[1 - to].name, kShapes[to].name, bench.bytes(), repeats,
                     median(series.exposed), median(series.hidden), median(series.raw),
                     median(series.stall), median(series.run)});
  }
  return costs;
}

}  // namespace plexrl::cli
