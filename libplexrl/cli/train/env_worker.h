// SPDX-License-Identifier: Apache-2.0
// EnvWorker: one process of --env-cmd, which speaks lines on stdin and stdout. It may do anything:
// what is read of it is bounded, nothing here blocks, and it ends with the object: the process
// leads a group of its own that is killed, and it dies with the thread that started it. One thread.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::cli {

// What a terminal may be shown of what a worker wrote: bytes that are no printable ASCII or line
// ends become '?'.
[[nodiscard]] std::string printable(std::string text);

class EnvWorker {
 public:
  static constexpr std::size_t kMaxLineBytes = 1U << 20;
  static constexpr std::size_t kKeptStderrBytes = 2048;

  // /bin/sh -c `command`. IO: it cannot be started.
  [[nodiscard]] static Result<std::unique_ptr<EnvWorker>> start(const std::string& command);
  EnvWorker(const EnvWorker&) = delete;
  EnvWorker& operator=(const EnvWorker&) = delete;
  ~EnvWorker();

  // `line` without its end; goes out while pump() is called.
  void send(std::string_view line);
  // What poll(2) is to wait for.
  void add_to(std::vector<pollfd>& fds) const;
  // Moves bytes in all directions as far as they go. The next line that the worker wrote, without
  // its end; nothing yet. IO: it ended, or closed its output. TOO_LARGE: a line above
  // kMaxLineBytes. PROTOCOL: something stands behind the line.
  [[nodiscard]] Result<std::optional<std::string>> pump();
  // The end of what it wrote on stderr, in printable characters; "" for nothing.
  [[nodiscard]] std::string errors() const;
  // Says that nothing more will be sent.
  void close_input() { input_.reset(); }
  // Readable when the process has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  EnvWorker(pid_t pid, UniqueFd pidfd, UniqueFd input, UniqueFd output, UniqueFd errors)
      : pid_(pid),
        pidfd_(std::move(pidfd)),
        input_(std::move(input)),
        output_(std::move(output)),
        errors_(std::move(errors)) {}
  void write_some();
  void read_errors();
  // False at the end of the output.
  [[nodiscard]] Result<bool> read_some();
  [[nodiscard]] bool has_ended() const;
  [[nodiscard]] Status how_it_ended() const;

  pid_t pid_;
  UniqueFd pidfd_, input_, output_, errors_;
  std::string unsent_;
  std::string unread_;  // at most kMaxLineBytes and a read
  std::string stderr_;
};

}  // namespace plexrl::cli
