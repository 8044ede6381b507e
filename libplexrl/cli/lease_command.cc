// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "cli/service_target.h"
#include "client/lease.h"

namespace plexrl::cli {
namespace {

constexpr int kPollMs = 200;
constexpr int kSignalBase = 128;  // as shells report it
constexpr int kNotFound = 127;
// A command that is told to end because its lease is gone has this long.
constexpr Duration kEndTime{5 * kSecond.ns};

struct LeaseOptions {
  ServiceTarget target;
  std::uint64_t device_bytes = 0;
  double limit_s = 0.0;
  std::string yield_signal;
  std::vector<std::string> command;
};

constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : kForwarded) ::sigaddset(&set, signal);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

// Runs one command under one lease.
class LeasedCommand {
 public:
  explicit LeasedCommand(const LeaseOptions& options) : options_(options) {}
  ~LeasedCommand() {
    if (child_ <= 0) return;
    (void)::kill(child_, SIGKILL);
    (void)::waitpid(child_, nullptr, 0);
  }
  LeasedCommand(const LeasedCommand&) = delete;
  LeasedCommand& operator=(const LeasedCommand&) = delete;

  Status run();
  [[nodiscard]] int exit_status() const { return exit_status_; }

 private:
  enum class Phase : std::uint8_t { kWaiting, kRunning, kYielded, kEnding };

  Status start();
  [[noreturn]] void become_command(int go, const sigset_t& mask);
  Status acquire();
  Status turn();
  void take_signals();
  void take_child();
  Status look_at_lease();
  Status held();
  void tell_limit();
  void ask_command();
  void end_command(int signal);

  const LeaseOptions& options_;
  int yield_signal_ = 0;
  pid_t child_ = 0;
  UniqueFd go_;
  UniqueFd signals_;
  std::unique_ptr<client::Lease> lease_;
  Phase phase_ = Phase::kWaiting;
  bool asked_ = false;
  bool stopped_ = false;  // the child has stopped itself
  Status failure_;
  TimePoint kill_at_;
  int exit_status_ = 0;
};

void LeasedCommand::become_command(int go, const sigset_t& mask) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGTERM);
  char byte = 0;
  if (::read(go, &byte, 1) != 1) ::_exit(kSignalBase + SIGTERM);
  (void)::sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::vector<char*> arguments;
  for (const std::string& word : options_.command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  std::fprintf(stderr, "plexrl: %s: %s\n", arguments.front(), std::strerror(errno));
  ::_exit(kNotFound);
}

// The command exists before the lease, so that its pid can be named, but waits for it.
Status LeasedCommand::start() {
  const sigset_t set = watched_signals();
  sigset_t before;
  if (::sigprocmask(SIG_BLOCK, &set, &before) != 0) return errno_error(Code::IO, errno, "signals");
  signals_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return errno_error(Code::IO, errno, "signalfd");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(Code::IO, errno, "pipe");
  const UniqueFd go(ends[0]);
  go_ = UniqueFd(ends[1]);
  child_ = ::fork();
  if (child_ < 0) return errno_error(Code::IO, errno, "fork");
  // A group of its own, by which plexrld finds all that it starts; not under a terminal, which
  // would take the keyboard from it. Here, because it has to be so before the pid is named.
  if (child_ != 0 && ::isatty(STDIN_FILENO) == 0) (void)::setpgid(child_, child_);
  if (child_ != 0) return {};
  go_.reset();
  become_command(go.get(), before);
}

Status LeasedCommand::acquire() {
  client::ConnectTarget target = options_.target.connect_target();
  const char* const token = std::getenv("PLEXRL_TOKEN");
  if (token == nullptr || *token == '\0')
    return error(Code::AUTH,
                 "PLEXRL_TOKEN is not set: run inside a job that was submitted with --plexrl-pool, "
                 "in a shell of salloc by srun");
  target.token = token;
  target.client_name = "plexrl lease run";
  wire::LeaseAcquireT request;
  request.device_bytes = options_.device_bytes;
  request.limit_ms = static_cast<std::uint64_t>(options_.limit_s * 1e3);
  request.yields = yield_signal_ != 0;
  request.pids = {child_};
  const Duration timeout{static_cast<std::int64_t>(options_.target.timeout_s * 1e9)};
  PLEXRL_ASSIGN(lease_, client::Lease::acquire(std::move(target), std::move(request), timeout));
  return {};
}

void LeasedCommand::end_command(int signal) {
  if (child_ <= 0 || phase_ == Phase::kEnding) return;
  phase_ = Phase::kEnding;
  kill_at_ = system_clock().now() + kEndTime;
  go_.reset();
  (void)::kill(child_, signal);
  (void)::kill(child_, SIGCONT);
}

void LeasedCommand::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD || child_ <= 0) continue;
    if (phase_ == Phase::kRunning) {
      (void)::kill(child_, signal);
    } else {
      end_command(signal);
    }
  }
}

void LeasedCommand::take_child() {
  int status = 0;
  while (child_ > 0 && ::waitpid(child_, &status, WNOHANG | WUNTRACED | WCONTINUED) == child_) {
    if (WIFSTOPPED(status)) {
      stopped_ = true;
    } else if (WIFCONTINUED(status)) {
      stopped_ = false;
    } else {
      child_ = 0;
      exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
    }
  }
}

// Said before the command starts: it would be told to end earlier than its user thinks.
void LeasedCommand::tell_limit() {
  const double granted_s = static_cast<double>(lease_->grant().limit_ms) * 1e-3;
  if (options_.limit_s > granted_s)
    std::fprintf(stderr,
                 "plexrl: --limit %g is above the site's limit; the lease ends after %g s\n",
                 options_.limit_s, granted_s);
}

Status LeasedCommand::held() {
  asked_ = false;
  if (phase_ == Phase::kWaiting) {
    tell_limit();
    const char byte = 1;
    if (::write(go_.get(), &byte, 1) != 1) return errno_error(Code::IO, errno, "start the command");
    go_.reset();
  } else {
    stopped_ = false;
    (void)::kill(child_, SIGCONT);
  }
  phase_ = Phase::kRunning;
  return {};
}

void LeasedCommand::ask_command() {
  asked_ = true;
  if (yield_signal_ != 0) {
    (void)::kill(child_, yield_signal_);
    return;
  }
  std::fprintf(stderr, "plexrl: the lease has reached its limit; the command is told to end\n");
  (void)::kill(child_, SIGTERM);
}

Status LeasedCommand::look_at_lease() {
  if (phase_ == Phase::kWaiting || phase_ == Phase::kYielded) {
    const Status status = lease_->wait(system_clock().now() + kMillisecond);
    if (status.code() == Code::TIMEOUT) return {};
    return status.ok() ? held() : status;
  }
  TimePoint until;
  PLEXRL_ASSIGN(const bool asked, lease_->should_yield(&until));
  if (asked && !asked_) ask_command();
  if (!asked_ || !stopped_ || yield_signal_ == 0) return {};
  phase_ = Phase::kYielded;
  return lease_->yield();
}

Status LeasedCommand::turn() {
  std::array<pollfd, 2> entries{{{signals_.get(), POLLIN, 0}, {lease_->fd(), POLLIN, 0}}};
  (void)::poll(entries.data(), entries.size(), kPollMs);
  take_signals();
  take_child();
  if (child_ == 0) return {};
  if (phase_ != Phase::kEnding) return look_at_lease();
  if (system_clock().now() >= kill_at_) (void)::kill(child_, SIGKILL);
  return {};
}

Status LeasedCommand::run() {
  if (!options_.yield_signal.empty()) {
    PLEXRL_ASSIGN(yield_signal_, parse_signal(options_.yield_signal));
  }
  PLEXRL_TRY(start());
  PLEXRL_TRY(acquire());
  while (child_ > 0) {
    const Status status = turn();
    if (status.ok()) continue;
    if (failure_.ok()) failure_ = status;
    end_command(SIGTERM);
  }
  (void)lease_->release();
  return failure_;
}

Status run_leased(const LeaseOptions& options) {
  int exit_status = 0;
  {
    LeasedCommand command(options);
    PLEXRL_TRY(command.run());
    exit_status = command.exit_status();
  }
  if (exit_status == 0) return {};
  std::exit(exit_status);  // the command's, which a Status cannot carry
}

}  // namespace

Result<int> parse_signal(const std::string& text) {
  constexpr std::array<std::pair<const char*, int>, 8> kNames{{{"USR1", SIGUSR1},
                                                               {"USR2", SIGUSR2},
                                                               {"TSTP", SIGTSTP},
                                                               {"TERM", SIGTERM},
                                                               {"INT", SIGINT},
                                                               {"HUP", SIGHUP},
                                                               {"QUIT", SIGQUIT},
                                                               {"URG", SIGURG}}};
  const std::string name = text.rfind("SIG", 0) == 0 ? text.substr(3) : text;
  for (const auto& [known, number] : kNames)
    if (name == known) return number;
  int number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = failed == std::errc() && end == text.data() + text.size();
  if (!whole || number < 1 || number > SIGRTMAX || number == SIGKILL || number == SIGSTOP ||
      number == SIGCONT || number == SIGCHLD)
    return error(Code::INVALID_ARGUMENT,
                 "--yield-signal '%s': use USR1, USR2, TSTP, TERM, INT, HUP, QUIT, URG or a number",
                 text.c_str());
  return number;
}

void add_lease(CLI::App& app, Run& chosen) {
  auto* group = app.add_subcommand("lease", "hold the device group for a program of your own");
  group->require_subcommand(1);
  auto* run = group->add_subcommand("run", "run a command while a lease is held");
  auto options = std::make_shared<LeaseOptions>();
  run->add_option("--device-bytes", options->device_bytes,
                  "device memory that the command uses, as 4096 or 1G; default: all")
      ->transform(CLI::AsSizeValue(false));
  run->add_option("--limit", options->limit_s, "longest hold in seconds; default: the site's")
      ->check(CLI::Range(0.1, 2592000.0));
  run->add_option("--yield-signal", options->yield_signal,
                  "the command can make way and is told so by this signal");
  add_service_options(*run, options->target);
  run->add_option("CMD", options->command, "command and its arguments, after --")->required();
  on_chosen(*run, chosen, options, run_leased);
}

}  // namespace plexrl::cli
