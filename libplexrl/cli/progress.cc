// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "cli/output.h"

namespace plexrl::cli {
namespace {

constexpr std::int64_t kRedrawNs = 100'000'000;
constexpr std::size_t kBarWidth = 30;

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "it is set in a signal handler");

void request_stop(int) { stop = true; }

std::uint64_t parts_of(std::uint64_t done, std::uint64_t all, std::uint64_t parts) {
  if (all == 0) return parts;
  return static_cast<std::uint64_t>(static_cast<double>(std::min(done, all)) /
                                    static_cast<double>(all) * static_cast<double>(parts));
}

}  // namespace

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (open_) std::fputc('\n', stderr);
}

void ProgressLine::show(std::uint64_t done, std::uint64_t all) {
  const std::uint64_t tenths = parts_of(done, all, 10);
  if (!terminal_) {
    if (tenths != tenths_) print_progress(what_ + ": " + std::to_string(tenths * 10) + " %");
    tenths_ = tenths;
    return;
  }
  const TimePoint now = system_clock().now();
  if (open_ && done < all && now.ns - drawn_.ns < kRedrawNs) return;
  drawn_ = now;
  draw(done, all);
}

void ProgressLine::draw(std::uint64_t done, std::uint64_t all) {
  std::string bar(parts_of(done, all, kBarWidth), '#');
  bar.resize(kBarWidth, '.');
  std::fprintf(stderr, "\r%s [%s] %3d %%  %s of %s ", what_.c_str(), bar.c_str(),
               static_cast<int>(parts_of(done, all, 100)), format_bytes(done).c_str(),
               format_bytes(all).c_str());
  std::fflush(stderr);
  open_ = true;
}

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = request_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

bool stop_requested() { return stop; }

}  // namespace plexrl::cli
