// SPDX-License-Identifier: Apache-2.0
#include "runtime/socket_reaper.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/reap_message.h"

namespace plexrl::runtime {

Status SocketReaper::last() {
  if (!connection_) return last_;
  char bytes[wire::kReapAnswerBytes];
  const ssize_t got = ::recv(connection_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return error(Code::BUSY, "plexrl-reap has not answered yet");
  connection_.reset();
  const auto answer =
      wire::decode_reap_answer({bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
  last_ = {};
  if (!answer) {
    last_ = error(Code::UNAVAILABLE, "plexrl-reap has cut the request off; see its log");
  } else if (answer->refused != 0) {
    last_ =
        error(Code::PERMISSION, "plexrl-reap refuses some as not of job %u; see its log", job_id_);
  }
  return last_;
}

Status SocketReaper::stop(const ReapRequest& request) {
  connection_.reset();
  last_ = {};
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
  connection_ = std::move(fd);
  job_id_ = request.job_id;
  return {};
}

}  // namespace plexrl::runtime
