// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_daemon.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "cli/bench/child_program.h"
#include "client/hook_client.h"

namespace plexrl::cli {
namespace {

constexpr std::uint32_t kJob = 1;
constexpr Duration kStartTime{20 * kSecond.ns};
constexpr Duration kStopTime{10 * kSecond.ns};

// Queues are longer than any load here, so that a load measures the daemon and not its refusals.
std::string daemon_text(const std::string& directory, std::uint32_t chunk_kib) {
  return "cluster: bench\n"
         "daemon:\n"
         "  user: root\n"
         "  run_dir: " +
         directory +
         "/run\n"
         "  state_dir: " +
         directory +
         "/state\n"
         "  chunk_kib: " +
         std::to_string(chunk_kib) +
         "\n"
         "  max_queued_ops_per_tenant: 8192\n"
         "  log_level: warning\n";
}

// Sizes suit the fake engine.
std::string fake_site_text(const std::string& directory) {
  return "pools:\n"
         "  - name: bench\n"
         "    partition: bench\n"
         "    nodes: benchnode\n"
         "    models: fake\n"
         "    train_modes: [lora]\n"
         "    host_memory_mib: 64\n"
         "    kv_host_mib: 8\n"
         "    device_memory_mib: 64\n"
         "    activation_memory_mib: 8\n"
         "    policy: fifo\n"
         "models:\n"
         "  - {name: fake, path: " +
         directory +
         "/model, parameters: 100000, hidden_size: 64,\n"
         "     layers: 2, intermediate_size: 128}\n";
}

constexpr const char* kGrant =
    "v1:pool=bench:share=100:mem=32:mode=lora:rank=8:slowdown=0:models=fake";

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return error(Code::IO, "write '%s'", path.c_str());
  return {};
}

bool ended_within(pid_t pid, Duration time) {
  const TimePoint deadline = system_clock().now() + time;
  while (::waitpid(pid, nullptr, WNOHANG) == 0) {
    if (system_clock().now() >= deadline) return false;
    const timespec pause{0, 10 * kMillisecond.ns};
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

// plexrld leaves its engines running for the next one. Their pid files name them; a process whose
// command line names neither this directory nor the base is somebody else's by now.
void end_engines(const std::string& directory, const std::string& base) {
  std::error_code failure;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory + "/run/engines", failure)) {
    if (entry.path().extension() != ".pid") continue;
    pid_t pid = 0;
    if (!(std::ifstream(entry.path()) >> pid) || pid <= 1) continue;
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    const bool ours = line.find(directory) != std::string::npos ||
                      (!base.empty() && line.find(base) != std::string::npos);
    if (ours) ::kill(pid, SIGKILL);
  }
}

}  // namespace

BenchDaemon::BenchDaemon()
    : traces_(std::make_shared<Traces>()), cleanup_([traces = traces_] { remove(*traces); }) {}

void BenchDaemon::remove(const Traces& traces) {
  if (traces.pid > 0) {
    ::kill(traces.pid, SIGTERM);
    if (!ended_within(traces.pid, kStopTime)) {
      ::kill(traces.pid, SIGKILL);
      ::waitpid(traces.pid, nullptr, 0);
    }
  }
  if (traces.directory.empty()) return;
  end_engines(traces.directory, traces.base_directory);
  remove_folder(traces.directory);
}

Result<BenchDaemon> BenchDaemon::launch(const std::string& program, const BenchSite& site) {
  if (::geteuid() != 0)
    return error(Code::PERMISSION,
                 "the benchmark opens a job in a plexrld of its own, which only "
                 "root may do: run it as root");
  BenchDaemon daemon;
  daemon.traces_->base_directory = site.base_directory;
  PLEXRL_TRY(daemon.make_directory(site));
  PLEXRL_TRY(daemon.spawn(program, site.fake_engine));
  return daemon;
}

Result<BenchDaemon> BenchDaemon::start(const std::string& program) {
  BenchSite site;
  site.text = fake_site_text;
  site.chunk_kib = 64;
  site.fake_engine = true;
  PLEXRL_ASSIGN(BenchDaemon daemon, launch(program, site));
  const Status status = daemon.open_model(system_clock().now() + kStartTime);
  if (!status.ok()) return daemon.with_log(status);
  return daemon;
}

Status BenchDaemon::make_directory(const BenchSite& site) {
  std::error_code no_tmp;
  std::string name = std::filesystem::temp_directory_path(no_tmp) / "plexrl-bench-XXXXXX";
  {
    const auto hold = Cleanup::hold();
    if (no_tmp || ::mkdtemp(name.data()) == nullptr)
      return errno_error(Code::IO, errno, "make the directory '%s'", name.c_str());
    directory_ = traces_->directory = name;
  }
  for (const char* part : {"/run", "/state", "/model"}) {
    std::error_code failure;
    std::filesystem::create_directory(directory_ + part, failure);
    if (failure) return error(Code::IO, "make '%s%s'", directory_.c_str(), part);
  }
  if (site.prepare) PLEXRL_TRY(site.prepare(directory_));
  return write_file(directory_ + "/plexrl.yaml",
                    daemon_text(directory_, site.chunk_kib) + site.text(directory_));
}

Status BenchDaemon::spawn(const std::string& program, bool fake_engine) {
  std::vector<std::string> words = {program, "--config", directory_ + "/plexrl.yaml", "--node",
                                    "benchnode"};
  if (fake_engine) words.emplace_back("--fake-engine");
  const auto hold = Cleanup::hold();
  PLEXRL_ASSIGN(traces_->pid, spawn_program(std::move(words), directory_ + "/log"));
  return {};
}

Result<client::ConnectTarget> BenchDaemon::open_job(std::uint32_t job, const std::string& grant,
                                                    TimePoint deadline) {
  // The hook's own open does not wait for a daemon that is starting.
  Status status = client::RpcClient::connect_when_up({socket(), "", "bench"}, deadline).status();
  if (status.ok())
    status = client::open_job(socket(), job, ::geteuid(), ::getegid(), grant, deadline);
  if (!status.ok()) return with_log(status);
  PLEXRL_ASSIGN(const client::TaskEnvironment task,
                client::attach_task(socket(), job, ::geteuid(), ::getpid(), deadline));
  return client::ConnectTarget{task.socket, task.token, "bench"};
}

Status BenchDaemon::open_model(TimePoint deadline) {
  PLEXRL_ASSIGN(target_, open_job(kJob, kGrant, deadline));
  PLEXRL_ASSIGN(client::RpcClient connection, client::RpcClient::connect(target_, deadline));
  wire::CreateModelT create;
  create.name = kModelName;
  create.base = "fake";
  create.mode = wire::TrainMode::Lora;
  create.lora_rank = 8;
  PLEXRL_ASSIGN(const wire::ModelInfoT info,
                connection.call<wire::ModelInfoT>(std::move(create), deadline));
  model_ = info.model;
  return {};
}

Status BenchDaemon::with_log(const Status& status) const {
  const std::string log = end_of(directory_ + "/log");
  return {status.code(), "plexrld for the benchmark: " + status.text() +
                             (log.empty() ? "" : "; its log ends:\n" + log)};
}

Result<std::string> find_engine(const std::string& plexrld) {
  const auto here = std::filesystem::path(plexrld).parent_path();
  for (const auto& candidate :
       {here / "plexrl-engine", here.parent_path() / "libexec" / "plexrl-engine"})
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
  return error(Code::NOT_FOUND, "no plexrl-engine beside '%s'", plexrld.c_str());
}

Result<std::string> find_plexrld() {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return error(Code::IO, "read /proc/self/exe: %s", failure.message().c_str());
  const auto here = self.parent_path();
  for (const auto& candidate :
       {here / "plexrld", here.parent_path() / "plexrld", here.parent_path() / "sbin" / "plexrld"})
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
  return error(Code::NOT_FOUND, "no plexrld beside '%s': name it with --plexrld", self.c_str());
}

}  // namespace plexrl::cli
