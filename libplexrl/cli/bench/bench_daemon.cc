// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "client/hook_client.h"

namespace plexrl::cli {
namespace {

constexpr std::uint32_t kJob = 1;
constexpr Duration kStartTime{20 * kSecond.ns};
constexpr Duration kStopTime{10 * kSecond.ns};
constexpr std::size_t kLogTail = 1500;

// One pool on one node of any name; sizes suit the fake engine. Queues are longer than the load, so
// that the load measures the daemon and not its refusals.
std::string site_text(const std::string& directory, const std::string& user) {
  return "cluster: bench\n"
         "pools:\n"
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
         "     layers: 2, intermediate_size: 128}\n"
         "daemon:\n"
         "  user: " +
         user +
         "\n"
         "  run_dir: " +
         directory +
         "/run\n"
         "  state_dir: " +
         directory +
         "/state\n"
         "  chunk_kib: 64\n"
         "  max_queued_ops_per_tenant: 8192\n"
         "  log_level: warning\n";
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

}  // namespace

BenchDaemon::BenchDaemon(BenchDaemon&& other) noexcept
    : directory_(std::exchange(other.directory_, {})),
      pid_(std::exchange(other.pid_, 0)),
      target_(std::move(other.target_)),
      model_(other.model_) {}

BenchDaemon::~BenchDaemon() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    if (!ended_within(pid_, kStopTime)) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

Result<BenchDaemon> BenchDaemon::start(const std::string& program) {
  if (::geteuid() != 0)
    return error(Code::PERMISSION,
                 "the benchmark opens a job in a plexrld of its own, which only "
                 "root may do: run it as root");
  BenchDaemon daemon;
  PLEXRL_TRY(daemon.make_directory());
  PLEXRL_TRY(daemon.spawn(program));
  const Status status = daemon.open_model(system_clock().now() + kStartTime);
  if (!status.ok()) return daemon.with_log(status);
  return daemon;
}

Status BenchDaemon::make_directory() {
  std::error_code no_tmp;
  std::string name = std::filesystem::temp_directory_path(no_tmp) / "plexrl-bench-XXXXXX";
  if (no_tmp || ::mkdtemp(name.data()) == nullptr)
    return errno_error(Code::IO, errno, "make the directory '%s'", name.c_str());
  directory_ = name;
  for (const char* part : {"/run", "/state", "/model"}) {
    std::error_code failure;
    std::filesystem::create_directory(directory_ + part, failure);
    if (failure) return error(Code::IO, "make '%s%s'", directory_.c_str(), part);
  }
  return write_file(directory_ + "/plexrl.yaml", site_text(directory_, "root"));
}

Status BenchDaemon::spawn(const std::string& program) {
  const std::string config = directory_ + "/plexrl.yaml", log = directory_ + "/log";
  std::vector<std::string> words = {program,  "--config",  config,
                                    "--node", "benchnode", "--fake-engine"};
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_CREAT | O_WRONLY | O_APPEND, 0600);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const int rc = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (rc != 0) {
    pid_ = 0;
    return errno_error(Code::NOT_FOUND, rc, "start '%s'", program.c_str());
  }
  return {};
}

Status BenchDaemon::open_model(TimePoint deadline) {
  const std::string socket = directory_ + "/run/plexrld.sock";
  // The hook's own open does not wait for a daemon that is starting.
  PLEXRL_TRY(client::RpcClient::connect_when_up({socket, "", "bench"}, deadline).status());
  PLEXRL_TRY(client::open_job(socket, kJob, ::geteuid(), ::getegid(), kGrant, deadline));
  PLEXRL_ASSIGN(const client::TaskEnvironment task,
                client::attach_task(socket, kJob, ::geteuid(), ::getpid(), deadline));
  target_ = {task.socket, task.token, "bench"};
  PLEXRL_ASSIGN(client::RpcClient connection, client::RpcClient::connect(target_, deadline));
  wire::CreateModelT create;
  create.name = "bench";
  create.base = "fake";
  create.mode = wire::TrainMode::Lora;
  create.lora_rank = 8;
  PLEXRL_ASSIGN(const wire::ModelInfoT info,
                connection.call<wire::ModelInfoT>(std::move(create), deadline));
  model_ = info.model;
  return {};
}

Status BenchDaemon::with_log(const Status& status) const {
  std::ifstream file(directory_ + "/log");
  std::string log{std::istreambuf_iterator<char>(file), {}};
  if (log.size() > kLogTail) log.erase(0, log.size() - kLogTail);
  return {status.code(), "plexrld for the benchmark: " + status.text() +
                             (log.empty() ? "" : "; its log ends:\n" + log)};
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
