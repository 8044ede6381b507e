// SPDX-License-Identifier: Apache-2.0
// plexrl-reap: stops the processes of a lease that did not yield. The only program of PlexRL on a
// node that runs as root for longer than a hook; plexrl-reap(8) describes it.
#include <fcntl.h>
#include <pwd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"
#include "config.h"
#include "reap/reap_server.h"

namespace {

using plexrl::Code;
using plexrl::error;

constexpr int kPassedFd = 3;
constexpr plexrl::Duration kIdle{30 * plexrl::kSecond.ns};

int usage(FILE* out, int status) {
  std::fprintf(out,
               "usage: plexrl-reap [--user NAME]\n"
               "The socket comes from systemd (plexrl-reap.socket); see plexrl-reap(8).\n");
  return status;
}

plexrl::Result<uid_t> uid_of(const std::string& user) {
  const passwd* const entry = ::getpwnam(user.c_str());
  if (entry == nullptr) return error(Code::NOT_FOUND, "no user '%s'", user.c_str());
  return entry->pw_uid;
}

plexrl::Result<plexrl::UniqueFd> passed_socket() {
  const char* const pid = std::getenv("LISTEN_PID");
  const char* const count = std::getenv("LISTEN_FDS");
  if (pid == nullptr || count == nullptr || std::atol(pid) != ::getpid() || std::atoi(count) != 1)
    return error(Code::INVALID_ARGUMENT,
                 "no socket was passed: plexrl-reap is started by plexrl-reap.socket");
  plexrl::UniqueFd socket(kPassedFd);
  if (::fcntl(kPassedFd, F_SETFD, FD_CLOEXEC) != 0)
    return plexrl::errno_error(Code::IO, errno, "the passed socket");
  return socket;
}

// A handle per process of a request, which may name more than the usual 1,024.
void allow_many_fds() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

plexrl::Status run(const std::string& user) {
  PLEXRL_ASSIGN(const uid_t uid, uid_of(user));
  PLEXRL_ASSIGN(auto socket, passed_socket());
  allow_many_fds();
  return plexrl::reap::ReapServer(std::move(socket), uid).run(kIdle);
}

}  // namespace

int main(int argc, char** argv) {
  plexrl::set_log_name("plexrl-reap");
  std::string user = "plexrl";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) return usage(stdout, 0);
    if (std::strcmp(argv[i], "--version") == 0)
      return std::puts("plexrl-reap " PACKAGE_VERSION) < 0;
    if (std::strcmp(argv[i], "--user") != 0 || i + 1 == argc) return usage(stderr, 2);
    user = argv[++i];
  }
  const plexrl::Status status = run(user);
  if (status.ok()) return 0;
  PLEXRL_LOG(kError, "%s", status.to_string().c_str());
  return 1;
}
