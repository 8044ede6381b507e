// SPDX-License-Identifier: Apache-2.0
// EventLoop: sd-event with RAII handles. One thread runs it; everything but post() is for that
// thread.
//
// A handle owns its watch: destroying or assigning it ends the watch, also from inside the watch's
// own callback. Handles must go before the loop. Callbacks do not throw: an exception that leaves
// one ends the process with its text.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::loop {

namespace internal {
struct Source;
struct SourceDeleter {
  void operator()(Source* source) const noexcept;
};
using SourcePtr = std::unique_ptr<Source, SourceDeleter>;
}  // namespace internal

// How a watched process ended. For a process that is not our child both are unknown.
struct ExitStatus {
  std::optional<int> code;    // exit(code)
  std::optional<int> signal;  // killed by
};

// A file descriptor that is watched; the caller keeps it open for longer than the watch.
class IoWatch {
 public:
  IoWatch() noexcept = default;
  // EPOLLIN, EPOLLOUT or both; 0 pauses. No-op when nothing changes, or the loop has ended.
  void set_events(std::uint32_t events);
  void reset() noexcept { source_.reset(); }
  [[nodiscard]] explicit operator bool() const noexcept { return source_ != nullptr; }

 private:
  friend class EventLoop;
  internal::SourcePtr source_;
  std::uint32_t events_ = 0;
};

// A one-shot timer that can be armed again and again.
class Timer {
 public:
  Timer() noexcept = default;
  void arm(TimePoint when);  // no-op when the loop has ended
  void disarm();
  void reset() noexcept { source_.reset(); }

 private:
  friend class EventLoop;
  internal::SourcePtr source_;
};

class SignalWatch {
 public:
  void reset() noexcept { source_.reset(); }

 private:
  friend class EventLoop;
  internal::SourcePtr source_;
};

// Watches a process by pidfd, so a reused pid cannot be mistaken for it.
class ProcessWatch {
 public:
  ProcessWatch() noexcept = default;
  void reset() noexcept;
  // ESRCH when it is gone already; 0 on success.
  int kill(int signal) const noexcept;

 private:
  friend class EventLoop;
  UniqueFd pidfd_;
  IoWatch io_;
};

class EventLoop {
 public:
  using Callback = std::function<void()>;
  using IoCallback =
      std::function<void(std::uint32_t events)>;  // EPOLLIN | EPOLLOUT | EPOLLHUP ...

  [[nodiscard]] static Result<std::unique_ptr<EventLoop>> create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  [[nodiscard]] Result<IoWatch> watch_io(int fd, std::uint32_t events, IoCallback callback);
  // Not armed yet.
  [[nodiscard]] Result<Timer> make_timer(Callback callback);
  // Blocks the signal in this thread; threads that were started earlier must have it blocked too.
  [[nodiscard]] Result<SignalWatch> watch_signal(int signal, Callback callback);
  // Once, when the process has ended; a child of ours is reaped. NOT_FOUND when there is no such
  // pid.
  [[nodiscard]] Result<ProcessWatch> watch_process(pid_t pid,
                                                   std::function<void(ExitStatus)> callback);

  // Runs `callback` in the loop's thread, in the order of the calls, never from inside the call.
  // Any thread. The queue is as long as what callers have under way, so callers bound it.
  void post(Callback callback);

  // Until exit(); returns its code.
  [[nodiscard]] Result<int> run();
  void exit(int code);
  // Handles at most one event, waiting up to `timeout`; false when nothing happened. For tests.
  [[nodiscard]] Result<bool> run_once(Duration timeout);

  // systemd: WATCHDOG=1 at half the unit's WatchdogSec, when it has one; true if it has.
  [[nodiscard]] Result<bool> enable_watchdog();

 private:
  struct PostQueue;
  EventLoop();
  [[nodiscard]] Status start_posting();
  void drain_posts();

  struct State;
  std::unique_ptr<State> state_;
};

// "READY=1", "STOPPING=1", "STATUS=..."; nothing happens outside of systemd.
void notify_systemd(const std::string& state);

// Sockets passed by systemd (or the lab), by name (FileDescriptorName=); empty when there are none.
// Takes them: a second call returns nothing.
struct PassedFd {
  std::string name;
  UniqueFd fd;
};
[[nodiscard]] Result<std::vector<PassedFd>> take_passed_fds();

}  // namespace plexrl::loop
