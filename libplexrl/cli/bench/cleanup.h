// SPDX-License-Identifier: Apache-2.0
// Cleanup: takes away what a benchmark has made (processes, files) when its object ends, and also
// when SIGINT, SIGTERM or SIGHUP ends the program. Any thread; an `undo` runs under the lock that
// hold() takes, once, and must not use a Cleanup itself.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"

namespace plexrl::cli {

class Cleanup {
 public:
  // From now on each of the signals that is not ignored runs what is registered, newest first, and
  // then ends the program as it would have. They are blocked in this thread and in those that it
  // starts: call it before there are others. A child that is to hear them needs another mask. Later
  // calls do nothing.
  [[nodiscard]] static Status catch_signals();
  // No signal is acted upon while this is held: something is made and `undo` is told of it.
  [[nodiscard]] static std::unique_lock<std::mutex> hold();

  Cleanup() = default;
  explicit Cleanup(std::function<void()> undo);
  Cleanup(Cleanup&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  Cleanup& operator=(Cleanup&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Cleanup();

 private:
  std::uint64_t number_ = 0;  // 0: nothing
};

// For an `undo`: with all that is in it, also while another thread still writes there.
void remove_folder(const std::string& path);

}  // namespace plexrl::cli
