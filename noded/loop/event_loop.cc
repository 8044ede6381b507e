// SPDX-License-Identifier: Apache-2.0
#include "loop/event_loop.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace plexrl::loop {
namespace {

// Posts of posts that are served in one turn. They save a turn and its system calls each; sockets
// and timers wait for no more than these.
constexpr int kPostRounds = 16;

}  // namespace

// Callbacks are shared, so that one that destroys its own handle goes on to its end.
struct internal::Source {
  sd_event_source* event = nullptr;
  std::shared_ptr<EventLoop::IoCallback> io;
  std::shared_ptr<EventLoop::Callback> plain;
};

void internal::SourceDeleter::operator()(Source* source) const noexcept {
  sd_event_source_disable_unref(source->event);
  std::unique_ptr<Source> owner(source);
}

struct EventLoop::State {
  sd_event* event = nullptr;
  UniqueFd wake;
  IoWatch wake_watch;
  std::mutex mutex;  // guards what follows
  std::vector<Callback> posted;
  bool draining = false;  // the loop looks at `posted` again without being woken

  // What was posted since the last call. Draining goes on while there is something, and `more`.
  std::vector<Callback> take_posted(bool more) {
    const std::lock_guard lock(mutex);
    draining = more && !posted.empty();
    if (draining) return std::exchange(posted, {});
    if (!posted.empty()) ::eventfd_write(wake.get(), 1);
    return {};
  }
  [[nodiscard]] bool exiting() const {
    int code = 0;
    return sd_event_get_exit_code(event, &code) >= 0;
  }

  ~State() {
    wake_watch.reset();
    sd_event_unref(event);
  }
};

namespace {

using internal::Source;
using internal::SourcePtr;

SourcePtr new_source() { return SourcePtr(std::make_unique<Source>().release()); }

template <class Call>
int guarded(Call call) noexcept {
  try {
    call();
  } catch (const std::exception& e) {
    check_failed("a callback of the event loop does not throw", e.what(), __FILE__, __LINE__);
  }
  return 0;
}

int on_io(sd_event_source*, int, std::uint32_t events, void* user) noexcept {
  const auto callback = static_cast<Source*>(user)->io;
  return guarded([&] { (*callback)(events); });
}

int on_timer(sd_event_source*, std::uint64_t, void* user) noexcept {
  const auto callback = static_cast<Source*>(user)->plain;
  return guarded([&] { (*callback)(); });
}

int on_signal(sd_event_source*, const signalfd_siginfo*, void* user) noexcept {
  const auto callback = static_cast<Source*>(user)->plain;
  return guarded([&] { (*callback)(); });
}

Status loop_error(int negative_errno, const char* what) {
  return errno_error(Code::IO, -negative_errno, "event loop: %s", what);
}

std::uint64_t to_usec(TimePoint t) noexcept {
  return t.ns <= 0 ? 0 : static_cast<std::uint64_t>((t.ns + 999) / 1000);
}

ExitStatus reap(int pidfd) noexcept {
  siginfo_t info{};
  // Not our child: ECHILD, and nobody can tell us more than that it ended.
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG) != 0) return {};
  if (info.si_code == CLD_EXITED) return {.code = info.si_status, .signal = {}};
  return {.code = {}, .signal = info.si_status};
}

}  // namespace

// ---- handles ----

namespace {

// -ESTALE: the loop has ended, and calls nothing any more.
bool accepted(int rc) { return rc >= 0 || rc == -ESTALE; }

}  // namespace

void IoWatch::set_events(std::uint32_t events) {
  if (!source_ || events == events_) return;
  const int rc = sd_event_source_set_io_events(source_->event, events);
  PLEXRL_CHECK(accepted(rc), "the events of a live watch can be set");
  events_ = events;
}

void Timer::arm(TimePoint when) {
  PLEXRL_CHECK(source_, "a timer is made before it is armed");
  int rc = sd_event_source_set_time(source_->event, to_usec(when));
  if (rc >= 0) rc = sd_event_source_set_enabled(source_->event, SD_EVENT_ONESHOT);
  PLEXRL_CHECK(accepted(rc), "a live timer can be armed");
}

void Timer::disarm() {
  if (source_) sd_event_source_set_enabled(source_->event, SD_EVENT_OFF);
}

void ProcessWatch::reset() noexcept {
  io_.reset();
  pidfd_.reset();
}

int ProcessWatch::kill(int signal) const noexcept {
  const long rc = ::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
  return rc == 0 ? 0 : errno;
}

// ---- the loop ----

EventLoop::EventLoop() : state_(std::make_unique<State>()) {}
EventLoop::~EventLoop() = default;

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  std::unique_ptr<EventLoop> loop(new EventLoop);
  if (const int rc = sd_event_new(&loop->state_->event); rc < 0) return loop_error(rc, "create");
  PLEXRL_TRY(loop->start_posting());
  return loop;
}

Result<IoWatch> EventLoop::watch_io(int fd, std::uint32_t events, IoCallback callback) {
  SourcePtr source = new_source();
  source->io = std::make_shared<IoCallback>(std::move(callback));
  const int rc = sd_event_add_io(state_->event, &source->event, fd, events, on_io, source.get());
  if (rc < 0) return loop_error(rc, "watch a file descriptor");
  IoWatch watch;
  watch.source_ = std::move(source);
  watch.events_ = events;
  return watch;
}

Result<Timer> EventLoop::make_timer(Callback callback) {
  SourcePtr source = new_source();
  source->plain = std::make_shared<Callback>(std::move(callback));
  // Accuracy 1 us: the default of 250 ms is for saving power.
  int rc = sd_event_add_time(state_->event, &source->event, CLOCK_MONOTONIC, 0, 1, on_timer,
                             source.get());
  if (rc >= 0) rc = sd_event_source_set_enabled(source->event, SD_EVENT_OFF);
  if (rc < 0) return loop_error(rc, "make a timer");
  Timer timer;
  timer.source_ = std::move(source);
  return timer;
}

Result<SignalWatch> EventLoop::watch_signal(int signal, Callback callback) {
  SourcePtr source = new_source();
  source->plain = std::make_shared<Callback>(std::move(callback));
  const int rc = sd_event_add_signal(state_->event, &source->event,
                                     signal | SD_EVENT_SIGNAL_PROCMASK, on_signal, source.get());
  if (rc < 0) return loop_error(rc, "watch a signal");
  SignalWatch watch;
  watch.source_ = std::move(source);
  return watch;
}

Result<ProcessWatch> EventLoop::watch_process(pid_t pid, std::function<void(ExitStatus)> callback) {
  ProcessWatch watch;
  watch.pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!watch.pidfd_)
    return errno_error(errno == ESRCH ? Code::NOT_FOUND : Code::IO, errno, "watch process %d", pid);
  // The level stays raised, so the watch ends itself before it calls out.
  auto self = std::make_shared<sd_event_source*>(nullptr);
  const int fd = watch.pidfd_.get();
  PLEXRL_ASSIGN(watch.io_,
                watch_io(fd, EPOLLIN, [fd, self, done = std::move(callback)](std::uint32_t) {
                  sd_event_source_set_enabled(*self, SD_EVENT_OFF);
                  done(reap(fd));
                }));
  *self = watch.io_.source_->event;
  return watch;
}

Status EventLoop::start_posting() {
  state_->wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state_->wake) return errno_error(Code::IO, errno, "event loop: eventfd");
  PLEXRL_ASSIGN(state_->wake_watch,
                watch_io(state_->wake.get(), EPOLLIN, [this](std::uint32_t) { drain_posts(); }));
  return {};
}

void EventLoop::post(Callback callback) {
  const std::lock_guard lock(state_->mutex);
  state_->posted.push_back(std::move(callback));
  const bool first = state_->posted.size() == 1;
  if (first && !state_->draining) ::eventfd_write(state_->wake.get(), 1);
}

void EventLoop::drain_posts() {
  eventfd_t count = 0;
  ::eventfd_read(state_->wake.get(), &count);
  for (int round = 0;; ++round) {
    auto todo = state_->take_posted(round < kPostRounds && !state_->exiting());
    if (todo.empty()) return;
    for (Callback& callback : todo) callback();
  }
}

Result<int> EventLoop::run() {
  const int rc = sd_event_loop(state_->event);
  if (rc >= 0) return rc;
  return loop_error(rc, "run");
}

void EventLoop::exit(int code) { sd_event_exit(state_->event, code); }

Result<bool> EventLoop::run_once(Duration timeout) {
  const auto usec = static_cast<std::uint64_t>(timeout.ns < 0 ? 0 : timeout.ns / 1000);
  const int rc = sd_event_run(state_->event, usec);
  if (rc < 0) return loop_error(rc, "run");
  return rc > 0;
}

Result<bool> EventLoop::enable_watchdog() {
  const int rc = sd_event_set_watchdog(state_->event, 1);
  if (rc < 0) return loop_error(rc, "watchdog");
  return rc > 0;
}

// ---- systemd ----

void notify_systemd(const std::string& state) { sd_notify(0, state.c_str()); }

Result<std::vector<PassedFd>> take_passed_fds() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(1, &names);
  if (count < 0) return loop_error(count, "take the passed file descriptors");
  std::vector<PassedFd> passed;
  for (int i = 0; i < count; ++i) {
    const std::unique_ptr<char, decltype(&std::free)> name(names[i], &std::free);
    passed.push_back({name ? name.get() : "", UniqueFd(SD_LISTEN_FDS_START + i)});
  }
  std::free(names);
  return passed;
}

}  // namespace plexrl::loop
