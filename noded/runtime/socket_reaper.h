// SPDX-License-Identifier: Apache-2.0
// SocketReaper: asks plexrl-reap over its socket. Never waits: the request fits into the socket,
// and the answer, which only says what was refused, is read by last(). A new request gives up the
// answer to the one before. Loop thread only.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "runtime/reaper.h"

namespace plexrl::runtime {

class SocketReaper final : public Reaper {
 public:
  explicit SocketReaper(std::string path) : path_(std::move(path)) {}

  // UNAVAILABLE: nobody listens at the path, or too many wait there.
  [[nodiscard]] Status stop(const ReapRequest& request) override;
  [[nodiscard]] Status last() override;

 private:
  std::string path_;
  UniqueFd connection_;  // of the last request, until it is answered
  std::uint32_t job_id_ = 0;
  Status last_;
};

}  // namespace plexrl::runtime
