// SPDX-License-Identifier: Apache-2.0
#include "runtime/socket_reaper.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "wire/reap_message.h"

namespace plexrl::runtime {

void SocketReaper::look_at_answer() {
  const UniqueFd connection = std::move(last_);
  if (!connection) return;
  char bytes[wire::kReapAnswerBytes];
  const ssize_t got = ::recv(connection.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  const auto answer =
      wire::decode_reap_answer({bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
  if (!answer) {
    PLEXRL_LOG(kWarning, "plexrl-reap has not answered the last request; see its log");
  } else if (answer->refused != 0) {
    PLEXRL_LOG(kWarning, "plexrl-reap has refused %u processes: not of that job; see its log",
               answer->refused);
  }
}

Status SocketReaper::stop(const ReapRequest& request) {
  look_at_answer();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path)
    return error(Code::INVALID_ARGUMENT, "'%s' is too long for a socket", path_.c_str());
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error(Code::IO, errno, "socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return errno_error(Code::UNAVAILABLE, errno, "plexrl-reap at '%s'", path_.c_str());
  wire::ReapRequest message{request.job_id, request.uid, request.pids};
  // More at the next call: those of now are gone by then.
  if (message.pids.size() > wire::kMaxReapPids) message.pids.resize(wire::kMaxReapPids);
  const std::string bytes = wire::encode(message);
  if (::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(bytes.size()))
    return errno_error(Code::IO, errno, "send to plexrl-reap");
  last_ = std::move(fd);
  return {};
}

}  // namespace plexrl::runtime
