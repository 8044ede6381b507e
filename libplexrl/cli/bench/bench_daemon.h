// SPDX-License-Identifier: Apache-2.0
// BenchDaemon: a plexrld in a directory of its own. The destructor ends the daemon and its engines
// and removes the directory, whatever happened; so does a signal that ends the program, once
// Cleanup catches them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/bench/cleanup.h"
#include "client/rpc_client.h"

namespace plexrl::cli {

struct BenchSite {
  // Pools, of a node named benchnode, and models, given the daemon's directory.
  std::function<std::string(const std::string& directory)> text;
  std::function<Status(const std::string& directory)> prepare;  // before the start; may be empty
  std::uint32_t chunk_kib = 2048;
  bool fake_engine = false;
  // Of a base outside of the daemon's directory: what an engine of it has in its command line.
  std::string base_directory;
};

class BenchDaemon {
 public:
  static constexpr const char* kModelName = "bench";  // of start()
  // `program`: plexrld. Needs root, because only root may open a job. The daemon's log is
  // <directory>/log and is quoted when it does not come up. It is starting on return.
  [[nodiscard]] static Result<BenchDaemon> launch(const std::string& program,
                                                  const BenchSite& site);
  // With the fake engine, one open job and one model, ready.
  [[nodiscard]] static Result<BenchDaemon> start(const std::string& program);
  BenchDaemon(BenchDaemon&&) = default;
  BenchDaemon& operator=(BenchDaemon&&) = delete;
  ~BenchDaemon() = default;

  // Opens a job of this user and attaches this process to it.
  [[nodiscard]] Result<client::ConnectTarget> open_job(std::uint32_t job, const std::string& grant,
                                                       TimePoint deadline);
  [[nodiscard]] std::string socket() const { return directory_ + "/run/plexrld.sock"; }

  // Of start():
  [[nodiscard]] const client::ConnectTarget& target() const noexcept { return target_; }
  [[nodiscard]] std::uint64_t model() const noexcept { return model_; }
  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }

 private:
  // What is taken away; changed under Cleanup::hold().
  struct Traces {
    std::string directory;
    std::string base_directory;
    pid_t pid = 0;
  };
  static void remove(const Traces& traces);

  BenchDaemon();
  [[nodiscard]] Status make_directory(const BenchSite& site);
  [[nodiscard]] Status spawn(const std::string& program, bool fake_engine);
  [[nodiscard]] Status open_model(TimePoint deadline);
  // "context: text", with the end of the daemon's log.
  [[nodiscard]] Status with_log(const Status& status) const;

  std::string directory_;
  std::shared_ptr<Traces> traces_;
  Cleanup cleanup_;
  client::ConnectTarget target_;
  std::uint64_t model_ = 0;
};

// plexrld beside this program (build directory) or in the sbin beside its bin.
[[nodiscard]] Result<std::string> find_plexrld();
// plexrl-engine beside it or in the libexec beside its sbin.
[[nodiscard]] Result<std::string> find_engine(const std::string& plexrld);

}  // namespace plexrl::cli
