// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/child_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

namespace plexrl::cli {
namespace {

constexpr std::size_t kLogTail = 1500;

// Of this process, without those that are given anew.
std::vector<std::string> environment_with(const std::vector<std::string>& given) {
  std::vector<std::string> all = given;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    const bool replaced = std::any_of(given.begin(), given.end(), [&](const std::string& other) {
      return other.compare(0, name.size(), name) == 0;
    });
    if (!replaced) all.emplace_back(entry);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Result<pid_t> spawn_program(std::vector<std::string> words, const std::string& log,
                            const std::vector<std::string>& environment) {
  std::vector<std::string> all = environment_with(environment);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(all);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                     O_CREAT | O_WRONLY | O_APPEND, 0600);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  // Not the mask of this thread: Cleanup has blocked what the child has to hear.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int rc = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (rc != 0) return errno_error(Code::NOT_FOUND, rc, "start '%s'", argv[0]);
  return pid;
}

ChildProgram::ChildProgram(std::string name, std::string log)
    : name_(std::move(name)),
      log_(std::move(log)),
      pid_(std::make_shared<pid_t>(0)),
      cleanup_([pid = pid_] {
        if (*pid > 0) ::kill(*pid, SIGKILL);
      }) {}

Result<ChildProgram> ChildProgram::start(std::vector<std::string> words, const std::string& log,
                                         const std::vector<std::string>& environment) {
  ChildProgram child(words.front(), log);
  const auto hold = Cleanup::hold();
  PLEXRL_ASSIGN(*child.pid_, spawn_program(std::move(words), log, environment));
  return child;
}

ChildProgram::~ChildProgram() {
  if (!pid_ || *pid_ == 0) return;
  ::kill(*pid_, SIGKILL);
  (void)wait();
}

// Cleanup may kill it meanwhile: it is still ours, as only the second call takes its status.
Status ChildProgram::wait() {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(*pid_), &info, WEXITED | WNOWAIT) < 0 &&
         errno == EINTR) {
  }
  int status = 0;
  {
    const auto hold = Cleanup::hold();
    const pid_t pid = std::exchange(*pid_, 0);
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return error(Code::INTERNAL, "'%s' failed; its log ends:\n%s", name_.c_str(),
               end_of(log_).c_str());
}

Status run_program(std::vector<std::string> words, const std::string& log) {
  PLEXRL_ASSIGN(ChildProgram child, ChildProgram::start(std::move(words), log));
  return child.wait();
}

std::string end_of(const std::string& log) {
  std::ifstream file(log);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.substr(text.size() - std::min(text.size(), kLogTail));
}

}  // namespace plexrl::cli
