// SPDX-License-Identifier: Apache-2.0
// Logging to stderr, one line per event, with the syslog priority prefix "<N>" when stderr is the
// journal. Levels are defined by volume: kError = somebody must act; kWarning = something is worse
// than configured; kInfo = a few lines per job; kDebug = a few lines per op; kTrace = per step.
// Any thread. A line is written by one write(2), so lines do not mix.
#pragma once

#include "base/status.h"

namespace plexrl {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3, kTrace = 4 };

void set_log_level(LogLevel level) noexcept;
[[nodiscard]] LogLevel log_level() noexcept;
// "error", "warning", "info", "debug", "trace"; false for anything else.
[[nodiscard]] bool parse_log_level(std::string_view text, LogLevel* level) noexcept;
// The name in front of each line: "plexrld", "plexrl-engine". Must outlive the process.
void set_log_name(const char* name) noexcept;
void log(LogLevel level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

}  // namespace plexrl

#define PLEXRL_LOG(level, ...)                               \
  do {                                                       \
    if (::plexrl::LogLevel::level <= ::plexrl::log_level())  \
      ::plexrl::log(::plexrl::LogLevel::level, __VA_ARGS__); \
  } while (false)
