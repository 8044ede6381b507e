// SPDX-License-Identifier: Apache-2.0
// BenchDaemon: a plexrld with its fake engine in a directory of its own, with one open job and one
// model. The destructor ends the daemon and removes the directory, whatever happened.
#pragma once

#include <sys/types.h>

#include <string>

#include "client/rpc_client.h"

namespace plexrl::cli {

class BenchDaemon {
 public:
  // `program`: plexrld. Needs root, because only root may open a job. The daemon's log is
  // <directory>/log and is quoted when it does not come up.
  [[nodiscard]] static Result<BenchDaemon> start(const std::string& program);
  BenchDaemon(BenchDaemon&& other) noexcept;
  BenchDaemon& operator=(BenchDaemon&&) = delete;
  ~BenchDaemon();

  [[nodiscard]] const client::ConnectTarget& target() const noexcept { return target_; }
  [[nodiscard]] std::uint64_t model() const noexcept { return model_; }
  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }

 private:
  BenchDaemon() = default;
  [[nodiscard]] Status make_directory();
  [[nodiscard]] Status spawn(const std::string& program);
  [[nodiscard]] Status open_model(TimePoint deadline);
  // "context: text", with the end of the daemon's log.
  [[nodiscard]] Status with_log(const Status& status) const;

  std::string directory_;
  pid_t pid_ = 0;
  client::ConnectTarget target_;
  std::uint64_t model_ = 0;
};

// plexrld beside this program (build directory) or in the sbin beside its bin.
[[nodiscard]] Result<std::string> find_plexrld();

}  // namespace plexrl::cli
