// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace plexrl {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<const char*> g_name{"plexrl"};

constexpr std::array<std::string_view, 5> kNames = {"error", "warning", "info", "debug", "trace"};
constexpr std::array<int, 5> kSyslog = {3, 4, 6, 7, 7};

// systemd sets JOURNAL_STREAM when stderr is its journal (systemd.exec(5)).
bool stderr_is_journal() noexcept {
  static const bool value = std::getenv("JOURNAL_STREAM") != nullptr;
  return value;
}

}  // namespace

void set_log_level(LogLevel level) noexcept { g_level = level; }
LogLevel log_level() noexcept { return g_level; }
void set_log_name(const char* name) noexcept { g_name = name; }

bool parse_log_level(std::string_view text, LogLevel* level) noexcept {
  const auto* found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) return false;
  *level = static_cast<LogLevel>(found - kNames.begin());
  return true;
}

void log(LogLevel level, const char* format, ...) noexcept {
  std::array<char, 2048> line{};
  const auto index = static_cast<std::size_t>(level);
  std::size_t used = 0;
  const auto advance = [&](int written) {
    if (written > 0) used = std::min(line.size() - 2, used + static_cast<std::size_t>(written));
  };
  if (stderr_is_journal()) advance(std::snprintf(line.data(), line.size(), "<%d>", kSyslog[index]));
  advance(std::snprintf(line.data() + used, line.size() - used, "%s: %s: ", g_name.load(),
                        kNames[index].data()));
  va_list args;
  va_start(args, format);
  advance(std::vsnprintf(line.data() + used, line.size() - used, format, args));
  va_end(args);
  for (std::size_t i = 0; i < used; ++i)
    if (line[i] == '\n') line[i] = ' ';  // one event, one line: text may come from outside
  line[used++] = '\n';
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), used);
}

}  // namespace plexrl
