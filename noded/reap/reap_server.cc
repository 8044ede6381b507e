// SPDX-License-Identifier: Apache-2.0
#include "reap/reap_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/log.h"
#include "reap/job_process.h"
#include "wire/reap_message.h"
#include "wire/unix_socket.h"

namespace plexrl::reap {
namespace {

Status wait_for(int fd, short events, TimePoint deadline) {
  const std::int64_t left = (deadline - system_clock().now()).ns;
  pollfd entry{fd, events, 0};
  const int found = left <= 0 ? 0 : ::poll(&entry, 1, static_cast<int>(left / kMillisecond.ns) + 1);
  if (found > 0 || (found < 0 && errno == EINTR)) return {};
  return error(Code::TIMEOUT, "the peer was too slow");
}

Result<std::string> read_exactly(int fd, std::size_t bytes, TimePoint deadline) {
  std::string text(bytes, '\0');
  std::size_t got = 0;
  while (got < bytes) {
    PLEXRL_TRY(wait_for(fd, POLLIN, deadline));
    const ssize_t n = ::recv(fd, text.data() + got, bytes - got, MSG_DONTWAIT);
    if (n == 0) return error(Code::PROTOCOL, "the peer went away");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return errno_error(Code::IO, errno, "recv");
    if (n > 0) got += static_cast<std::size_t>(n);
  }
  return text;
}

void count(const Status& status, wire::ReapAnswer& answer) {
  if (status.ok()) {
    ++answer.stopped;
  } else if (status.code() == Code::NOT_FOUND) {
    ++answer.gone;
  } else {
    // The first few say enough; a request may name thousands.
    if (++answer.refused <= 8) PLEXRL_LOG(kWarning, "refused: %s", status.to_string().c_str());
  }
}

// All are looked at before the first is stopped: the end of one takes away what shows whose child
// the next one is.
wire::ReapAnswer carry_out(const wire::ReapRequest& request) {
  wire::ReapAnswer answer;
  std::vector<JobProcess> found;
  for (const pid_t pid : request.pids) {
    auto process = JobProcess::open(pid, request.job_id, request.uid);
    if (process) {
      found.push_back(*std::move(process));
    } else {
      count(process.error(), answer);
    }
  }
  for (const JobProcess& process : found) count(process.kill(), answer);
  PLEXRL_LOG(kInfo, "job %u of uid %u: %u processes stopped, %u had ended, %u refused",
             request.job_id, request.uid, answer.stopped, answer.gone, answer.refused);
  return answer;
}

}  // namespace

Status ReapServer::serve(const UniqueFd& connection) const {
  const int fd = connection.get();
  PLEXRL_ASSIGN(const auto peer, wire::peer_credentials(fd));
  if (peer.uid != user_) return error(Code::PERMISSION, "uid %u may not use plexrl-reap", peer.uid);
  const TimePoint deadline = system_clock().now() + kConnectionTime;
  PLEXRL_ASSIGN(std::string bytes, read_exactly(fd, wire::kReapHeadBytes, deadline));
  PLEXRL_ASSIGN(const std::size_t body, wire::reap_body_bytes(bytes));
  PLEXRL_ASSIGN(const std::string pids, read_exactly(fd, body, deadline));
  PLEXRL_ASSIGN(const auto request, wire::decode_reap_request(bytes + pids));
  const std::string answer = wire::encode(carry_out(request));
  // 16 bytes into an empty socket: it takes them at once or the peer is gone.
  (void)::send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return {};
}

Status ReapServer::run(Duration idle) {
  for (;;) {
    if (!wait_for(listener_.get(), POLLIN, system_clock().now() + idle).ok()) return {};
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) continue;
    if (!connection) return errno_error(Code::IO, errno, "accept");
    if (const Status status = serve(connection); !status.ok())
      PLEXRL_LOG(kWarning, "connection cut off: %s", status.to_string().c_str());
  }
}

}  // namespace plexrl::reap
