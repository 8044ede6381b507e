// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <string_view>

namespace plexrl::engine {
namespace {

std::string own_directory() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return {};
  const std::string_view text(path.data(), static_cast<std::size_t>(length));
  return std::string(text.substr(0, text.rfind('/')));
}

std::string pid_path(const EngineSpec& spec) { return spec.socket_path + ".pid"; }

Result<std::string> read_small(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_error(Code::NOT_FOUND, errno, "open '%s'", path.c_str());
  std::array<char, 8192> text{};
  const ssize_t length = ::read(fd.get(), text.data(), text.size());
  if (length < 0) return errno_error(Code::IO, errno, "read '%s'", path.c_str());
  return std::string(text.data(), static_cast<std::size_t>(length));
}

Status record(const EngineSpec& spec, pid_t pid) {
  const std::string path = pid_path(spec);
  const std::string text = std::to_string(pid) + "\n";
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return errno_error(Code::IO, errno, "write '%s'", path.c_str());
  return {};
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// posix_spawn's settings; both objects need destroying.
class SpawnSettings {
 public:
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  // Its own session, so that a terminal's Ctrl-C for plexrld does not reach it; no blocked or
  // ignored signals. Descriptors above the listener are closed whatever their flags say.
  [[nodiscard]] int prepare(int listener) {
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    int rc = ::posix_spawnattr_setsigmask(&attributes_, &none);
    if (rc == 0) rc = ::posix_spawnattr_setsigdefault(&attributes_, &all);
    if (rc == 0)
      rc = ::posix_spawnattr_setflags(
          &attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (rc == 0) rc = ::posix_spawn_file_actions_adddup2(&actions_, listener, kEngineListenerFd);
    if (rc == 0)
      rc = ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0) rc = ::posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
    if (rc == 0) rc = ::posix_spawn_file_actions_addclosefrom_np(&actions_, kEngineListenerFd + 1);
    return rc;
  }

  [[nodiscard]] posix_spawn_file_actions_t* actions() { return &actions_; }
  [[nodiscard]] posix_spawnattr_t* attributes() { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

Result<std::string> find_engine_program() {
  const std::string beside = own_directory() + "/plexrl-engine";
  const std::string installed = own_directory() + "/../libexec/plexrl-engine";
  for (const std::string& path : {beside, installed})
    if (::access(path.c_str(), X_OK) == 0) return path;
  return error(Code::NOT_FOUND, "plexrl-engine is neither at %s nor at %s; set engine_program",
               beside.c_str(), installed.c_str());
}

std::vector<std::string> engine_arguments(const EngineSpec& spec) {
  const bool full = spec.mode == wire::TrainMode::Full;
  return {"plexrl-engine",
          "--id",
          std::to_string(spec.id.value),
          "--base-dir",
          spec.base_path,
          "--base-name",
          spec.base_name,
          "--mode",
          full ? "full" : "lora",
          "--threads",
          std::to_string(spec.threads),
          "--activation-bytes",
          std::to_string(spec.activation_bytes),
          "--device",
          spec.device,
          "--dtype",
          spec.dtype};
}

std::vector<std::string> engine_environment(const EngineSpec& spec) {
  const std::string threads = std::to_string(spec.threads);
  // Large blocks stay mapped instead of being refaulted in each step.
  const std::string tunables =
      "GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:"
      "glibc.malloc.top_pad=67108864";
  std::vector<std::string> out = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", tunables,
                                  "OMP_NUM_THREADS=" + threads, "OPENBLAS_NUM_THREADS=" + threads,
                                  // Spinning barriers collapse when a neighbour takes a core
                                  // (measured: 52 ms per step).
                                  "OMP_WAIT_POLICY=PASSIVE"};
  if (const char* const stream = std::getenv("JOURNAL_STREAM"))
    out.push_back(std::string("JOURNAL_STREAM=") + stream);
  return out;
}

Result<pid_t> spawn_engine(const std::string& program, const EngineSpec& spec, int listener) {
  SpawnSettings settings;
  std::vector<std::string> arguments = engine_arguments(spec);
  std::vector<std::string> environment = engine_environment(spec);
  pid_t pid = 0;
  int rc = settings.prepare(listener);
  if (rc == 0)
    rc = ::posix_spawn(&pid, program.c_str(), settings.actions(), settings.attributes(),
                       pointers(arguments).data(), pointers(environment).data());
  if (rc != 0) return errno_error(Code::IO, rc, "start '%s'", program.c_str());
  if (const Status status = record(spec, pid); !status.ok()) {
    ::kill(pid, SIGKILL);
    return status;
  }
  return pid;
}

pid_t recorded_engine(const EngineSpec& spec) {
  const auto text = read_small(pid_path(spec));
  if (!text) return 0;
  pid_t pid = 0;
  std::from_chars(text->data(), text->data() + text->size(), pid);
  if (pid <= 1) return 0;
  // Another process may have got the number since.
  return is_engine(pid, spec.id) ? pid : 0;
}

bool is_engine(pid_t pid, EngineId id) {
  const auto arguments = read_small("/proc/" + std::to_string(pid) + "/cmdline");
  std::string expected;
  for (const char* word : {"plexrl-engine", "--id"}) (expected += word).push_back('\0');
  (expected += std::to_string(id.value)).push_back('\0');
  return arguments && arguments->starts_with(expected);
}

bool is_stopped(pid_t pid) {
  const auto text = read_small("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = text ? text->rfind(')') : std::string::npos;  // it may hold anything
  return name_end != std::string::npos && text->substr(name_end + 1).starts_with(" T");
}

}  // namespace plexrl::engine
