// SPDX-License-Identifier: Apache-2.0
#include "cli/bounded_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/unique_fd.h"

namespace plexrl::cli {
namespace {

// A child that leads its own process group; kills the group and reaps the child when destroyed. The
// group is killed before the child is reaped, while its number cannot have been given to another.
class GroupLeader {
 public:
  explicit GroupLeader(pid_t pid) : pid_(pid) {}
  GroupLeader(const GroupLeader&) = delete;
  GroupLeader& operator=(const GroupLeader&) = delete;
  ~GroupLeader() { (void)end(); }

  // The wait status.
  int end() {
    if (pid_ > 0) {
      ::kill(-pid_, SIGKILL);
      while (::waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) continue;
      pid_ = -1;
    }
    return wait_status_;
  }

 private:
  pid_t pid_;
  int wait_status_ = 0;
};

Result<UniqueFd> input_file(std::string_view input) {
  UniqueFd fd(::memfd_create("plexrl-stdin", MFD_CLOEXEC));
  if (!fd) return errno_error(Code::IO, errno, "memfd_create");
  while (!input.empty()) {
    const ssize_t written = ::write(fd.get(), input.data(), input.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return errno_error(Code::IO, errno, "write the command's input");
    input.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::lseek(fd.get(), 0, SEEK_SET) < 0) return errno_error(Code::IO, errno, "lseek");
  return fd;
}

// posix_spawn with its two setup objects.
class Spawner {
 public:
  Spawner() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;
  ~Spawner() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  Result<pid_t> spawn(const std::string& command, int input, int output) {
    posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    std::string shell = "sh", flag = "-c", text = command;
    char* arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
    pid_t pid = -1;
    const int rc = ::posix_spawn(&pid, "/bin/sh", &actions_, &attributes_, arguments, environ);
    if (rc != 0) return errno_error(Code::IO, rc, "start /bin/sh");
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Appends what is there; false at the end of the stream. The fd does not block.
Result<bool> read_some(int fd, std::size_t limit, std::string& output) {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got == 0) return false;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0) return errno_error(Code::IO, errno, "read the command's output");
    output.append(buffer.data(), static_cast<std::size_t>(got));
    if (output.size() > limit)
      return error(Code::TOO_LARGE, "the command wrote more than %zu bytes", limit);
  }
}

// Until the child ends: what it writes. A background process that keeps the pipe open does not
// count.
Status collect(int pidfd, int pipe, TimePoint deadline, std::size_t limit, std::string& output) {
  pollfd fds[] = {{pidfd, POLLIN, 0}, {pipe, POLLIN, 0}};
  for (;;) {
    const std::int64_t left_ns = (deadline - system_clock().now()).ns;
    if (left_ns <= 0) return error(Code::TIMEOUT, "the command did not end in time");
    const auto left_ms = static_cast<int>(std::min<std::int64_t>(left_ns / 1'000'000 + 1, 60'000));
    if (::poll(fds, 2, left_ms) < 0 && errno != EINTR) return errno_error(Code::IO, errno, "poll");
    const bool ended = fds[0].revents != 0;
    if (fds[1].fd >= 0) {
      PLEXRL_ASSIGN(const bool open, read_some(pipe, limit, output));
      if (!open) fds[1].fd = -1;
    }
    if (ended) return {};
  }
}

}  // namespace

Result<CommandResult> run_bounded(const std::string& command, std::string_view input,
                                  Duration time_limit, std::size_t max_output_bytes) {
  PLEXRL_ASSIGN(const UniqueFd stdin_fd, input_file(input));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error(Code::IO, errno, "pipe2");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  if (::fcntl(reader.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error(Code::IO, errno, "fcntl");
  const TimePoint deadline = system_clock().now() + time_limit;
  PLEXRL_ASSIGN(const pid_t pid, Spawner().spawn(command, stdin_fd.get(), writer.get()));
  GroupLeader child(pid);
  writer.reset();
  // By number: the wrapper in the header of glibc 2.36 has C++ linkage, which nothing defines.
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return errno_error(Code::IO, errno, "pidfd_open");
  CommandResult result;
  PLEXRL_TRY(collect(pidfd.get(), reader.get(), deadline, max_output_bytes, result.output));
  const int wait_status = child.end();
  if (!WIFEXITED(wait_status))
    return error(Code::IO, "the command was ended by signal %d", WTERMSIG(wait_status));
  result.exit_status = WEXITSTATUS(wait_status);
  return result;
}

}  // namespace plexrl::cli
