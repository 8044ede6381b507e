// SPDX-License-Identifier: Apache-2.0
// Progress of a long command on stderr, and its end by a signal. Main thread only.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace plexrl::cli {

// On a terminal one line that is drawn anew, at most ten times a second; elsewhere a line for each
// tenth of the work.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);  // "import"
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();  // ends the line

  // Both in bytes.
  void show(std::uint64_t done, std::uint64_t all);

 private:
  void draw(std::uint64_t done, std::uint64_t all);
  std::string what_;
  bool terminal_;
  TimePoint drawn_;
  std::uint64_t tenths_ = 0;
  bool open_ = false;  // a line that was drawn and not ended
};

// From now on SIGINT and SIGTERM only set what stop_requested() says; a second one ends the process
// at once.
void catch_stop_signals();
[[nodiscard]] bool stop_requested();

}  // namespace plexrl::cli
