// SPDX-License-Identifier: Apache-2.0
// SocketReaper: asks plexrl-reap over its socket. Never waits: the request fits into the socket,
// and the answer, which only says what was refused, is looked at when the next request is sent.
// Loop thread only.
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

 private:
  void look_at_answer();

  std::string path_;
  UniqueFd last_;  // connection of the last request
};

}  // namespace plexrl::runtime
