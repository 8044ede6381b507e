// SPDX-License-Identifier: Apache-2.0
#include "cli/train/env_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace plexrl::cli {
namespace {

// A flood on stderr is thrown away at this pace, so that it cannot keep us from anything else.
constexpr std::size_t kMaxStderrReads = 16;
constexpr int kEndWaitMs = 500;

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(Code::IO, errno, "pipe2");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Status unblock(const UniqueFd& fd) {
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0) return {};
  return errno_error(Code::IO, errno, "fcntl");
}

// Between fork and exec: nothing that takes a lock.
[[noreturn]] void become(const char* command, pid_t parent, int input, int output, int errors) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(input, STDIN_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 &&
      ::dup2(errors, STDERR_FILENO) >= 0)
    ::execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  ::_exit(127);
}

}  // namespace

std::string printable(std::string text) {
  for (char& c : text)
    if (c != '\n' && (c < ' ' || c > '~')) c = '?';
  return text;
}

Result<std::unique_ptr<EnvWorker>> EnvWorker::start(const std::string& command) {
  PLEXRL_ASSIGN(Pipe input, make_pipe());
  PLEXRL_ASSIGN(Pipe output, make_pipe());
  PLEXRL_ASSIGN(Pipe errors, make_pipe());
  for (const UniqueFd* fd : {&input.writer, &output.reader, &errors.reader})
    PLEXRL_TRY(unblock(*fd));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error(Code::IO, errno, "fork");
  if (pid == 0)
    become(command.c_str(), parent, input.reader.get(), output.writer.get(), errors.writer.get());
  ::setpgid(pid, pid);  // here too: whoever comes first
  // By number: the wrapper in the header of glibc 2.36 has C++ linkage, which nothing defines.
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int failed = errno;
  std::unique_ptr<EnvWorker> worker(new EnvWorker(pid, std::move(pidfd), std::move(input.writer),
                                                  std::move(output.reader),
                                                  std::move(errors.reader)));
  if (!worker->pidfd_) return errno_error(Code::IO, failed, "pidfd_open");
  return worker;
}

// The group is killed before its leader is reaped, while its number cannot be another's.
EnvWorker::~EnvWorker() {
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void EnvWorker::send(std::string_view line) {
  unsent_ += line;
  unsent_ += '\n';
  write_some();
}

// A pipe that nobody reads shows as the end of the worker. SIGPIPE: blocked while we write.
void EnvWorker::write_some() {
  sigset_t pipe_signal, before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  while (!unsent_.empty() && input_) {
    const ssize_t written = ::write(input_.get(), unsent_.data(), unsent_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    if (written < 0) {
      const timespec now = {0, 0};
      if (errno == EPIPE) ::sigtimedwait(&pipe_signal, nullptr, &now);
      input_.reset();
      break;
    }
    unsent_.erase(0, static_cast<std::size_t>(written));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void EnvWorker::add_to(std::vector<pollfd>& fds) const {
  fds.push_back({pidfd_.get(), POLLIN, 0});
  fds.push_back({output_.get(), POLLIN, 0});
  if (errors_) fds.push_back({errors_.get(), POLLIN, 0});
  if (input_ && !unsent_.empty()) fds.push_back({input_.get(), POLLOUT, 0});
}

void EnvWorker::read_errors() {
  std::array<char, 4096> buffer;
  for (std::size_t i = 0; errors_ && i < kMaxStderrReads; ++i) {
    const ssize_t got = ::read(errors_.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
      errors_.reset();
      return;
    }
    stderr_.append(buffer.data(), static_cast<std::size_t>(got));
    if (stderr_.size() > kKeptStderrBytes) stderr_.erase(0, stderr_.size() - kKeptStderrBytes);
  }
}

Result<bool> EnvWorker::read_some() {
  std::array<char, 65536> buffer;
  while (unread_.find('\n') == std::string::npos) {
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    if (got == 0) return false;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0) return errno_error(Code::IO, errno, "read");
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
    if (unread_.size() > kMaxLineBytes && unread_.find('\n') > kMaxLineBytes)
      return error(Code::TOO_LARGE, "it wrote a line of more than %zu bytes", kMaxLineBytes);
  }
  return true;
}

bool EnvWorker::has_ended() const {
  pollfd fd = {pidfd_.get(), POLLIN, 0};
  return ::poll(&fd, 1, 0) > 0;
}

Status EnvWorker::how_it_ended() const {
  pollfd fd = {pidfd_.get(), POLLIN, 0};
  (void)::poll(&fd, 1, kEndWaitMs);  // its output ends a little before it does
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return error(Code::IO, "it closed its standard output");
  if (info.si_code == CLD_EXITED)
    return error(Code::IO, "it ended with exit status %d", info.si_status);
  return error(Code::IO, "it was ended by signal %d", info.si_status);
}

Result<std::optional<std::string>> EnvWorker::pump() {
  write_some();
  read_errors();
  const bool ended = has_ended();  // before the read: what it wrote last is there then
  PLEXRL_ASSIGN(const bool open, read_some());
  const std::size_t end = unread_.find('\n');
  if (end == std::string::npos) {
    if (open && !ended) return std::optional<std::string>();
    read_errors();
    return how_it_ended();
  }
  if (end + 1 < unread_.size())
    return error(Code::PROTOCOL, "it wrote more than one line for one request: '%s'",
                 printable(unread_.substr(end + 1, 60)).c_str());
  std::string line = unread_.substr(0, end);
  unread_.clear();
  return std::optional<std::string>(std::move(line));
}

std::string EnvWorker::errors() const {
  std::string text = printable(stderr_);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace plexrl::cli
