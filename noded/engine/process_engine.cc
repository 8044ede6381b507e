// SPDX-License-Identifier: Apache-2.0
#include "engine/process_engine.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include "base/log.h"
#include "engine/engine_process.h"
#include "wire/message.h"
#include "wire/unix_socket.h"

namespace plexrl::engine {
namespace {

using Number = unsigned long long;

// Looks at an engine that has not said hello, within its time; at the usual time one in 5 s.
constexpr int kLooks = 24;

std::string ended(const loop::ExitStatus& status) {
  if (status.signal) return "killed by signal " + std::to_string(*status.signal);
  if (status.code) return "exited with " + std::to_string(*status.code);
  return "ended";
}

class ProcessEngine final : public Engine {
 public:
  ProcessEngine(loop::EventLoop& loop, std::string program, EngineSpec spec,
                EngineListener& listener, Duration hello_timeout)
      : loop_(loop),
        program_(std::move(program)),
        spec_(std::move(spec)),
        listener_(listener),
        hello_timeout_(hello_timeout) {}
  // A killed process ends within milliseconds; waiting for a child leaves no zombie behind.
  ~ProcessEngine() override {
    if (pid_ == 0) return;
    process_.kill(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    remove_files();
  }

  void start() override;
  void call(wire::EngineBodyUnion request, std::vector<int> fds, ReplyHandler done) override;
  void kill() override;
  void stop(Duration grace) override;
  void detach() override;
  [[nodiscard]] const EngineSpec& spec() const override { return spec_; }
  [[nodiscard]] int pid() const override { return pid_; }

 private:
  enum class State : std::uint8_t { kOff, kWaitsForHello, kUp, kEnding };

  [[nodiscard]] Status attach_or_spawn();
  [[nodiscard]] Status spawn();
  [[nodiscard]] Status watch(pid_t pid);
  [[nodiscard]] Status open_channel(UniqueFd socket);
  void look_at_start();
  void remove_files();

  void on_socket(std::uint32_t events);
  void take_frames();
  [[nodiscard]] Status serve(wire::Frame frame);
  [[nodiscard]] Status on_hello(const wire::EngineMessageT& message, std::vector<UniqueFd> fds);
  static void answer(const ReplyHandler& done, wire::EngineBodyUnion body,
                     std::vector<UniqueFd> fds);
  void fail_call(ReplyHandler done, Status why);
  void update_events();

  void end(const Status& why);  // kills; down() follows when the process is gone
  void down(const Status& why);
  void later(std::function<void()> what);

  loop::EventLoop& loop_;
  std::string program_;
  EngineSpec spec_;
  EngineListener& listener_;
  Duration hello_timeout_;

  State state_ = State::kOff;
  bool silent_ = false;  // stop() was called: no callback follows
  pid_t pid_ = 0;
  Status why_;  // the first reason of an end under way
  std::optional<wire::Channel> channel_;
  loop::IoWatch socket_watch_;
  loop::ProcessWatch process_;
  loop::Timer timer_;  // a look at the start, or the grace of stop()
  TimePoint hello_due_;
  bool was_stopped_ = false;  // at the last look
  std::map<std::uint64_t, ReplyHandler> calls_;
  std::uint64_t next_id_ = 1;
  // Posted callbacks hold a weak reference: the engine may be destroyed before they run.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

void ProcessEngine::later(std::function<void()> what) {
  loop_.post([what = std::move(what), alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) what();
  });
}

void ProcessEngine::start() {
  if (state_ != State::kOff) return;
  state_ = State::kWaitsForHello;
  silent_ = false;
  why_ = Status();
  const Status status = attach_or_spawn();
  if (status.ok()) return;
  PLEXRL_LOG(kError, "engine %llu: %s", static_cast<Number>(spec_.id.value),
             status.to_string().c_str());
  end(status);
}

Status ProcessEngine::attach_or_spawn() {
  PLEXRL_ASSIGN(timer_, loop_.make_timer([this] { look_at_start(); }));
  const TimePoint now = system_clock().now();
  hello_due_ = now + hello_timeout_;
  was_stopped_ = false;
  timer_.arm(now + Duration{hello_timeout_.ns / kLooks});
  // Connecting needs no partner that is awake: the kernel queues us. No deadline is needed.
  auto socket = wire::connect_unix(spec_.socket_path, system_clock().now());
  if (!socket) return spawn();
  if (const pid_t pid = recorded_engine(spec_); pid != 0) PLEXRL_TRY(watch(pid));
  return open_channel(std::move(*socket));
}

Status ProcessEngine::spawn() {
  // Nobody listens. If the process is there all the same, it must go before its memory is reused.
  if (const pid_t old = recorded_engine(spec_); old != 0) {
    PLEXRL_TRY(watch(old));
    return error(Code::ENGINE_DOWN, "an engine that does not listen any more (pid %d) is killed",
                 old);
  }
  PLEXRL_ASSIGN(const auto listener, wire::listen_unix(spec_.socket_path, 0600));
  PLEXRL_ASSIGN(const pid_t pid, spawn_engine(program_, spec_, listener.get()));
  PLEXRL_TRY(watch(pid));
  PLEXRL_ASSIGN(auto socket, wire::connect_unix(spec_.socket_path, system_clock().now()));
  return open_channel(std::move(socket));
}

Status ProcessEngine::watch(pid_t pid) {
  PLEXRL_ASSIGN(process_, loop_.watch_process(pid, [this](loop::ExitStatus status) {
    pid_ = 0;
    down(why_.ok() ? error(Code::ENGINE_DOWN, "the engine %s", ended(status).c_str()) : why_);
  }));
  pid_ = pid;
  return {};
}

// An engine may take long to load or to end a move. One that stands still will never get there.
void ProcessEngine::look_at_start() {
  const TimePoint now = system_clock().now();
  if (now >= hello_due_) return end(error(Code::ENGINE_DOWN, "the engine sent no hello in time"));
  const bool stopped = pid_ != 0 && is_stopped(pid_);
  if (stopped && was_stopped_)
    return end(error(Code::ENGINE_DOWN, "the engine stands still (state T) and sent no hello"));
  was_stopped_ = stopped;
  timer_.arm(std::min(hello_due_, now + Duration{hello_timeout_.ns / kLooks}));
}

Status ProcessEngine::open_channel(UniqueFd socket) {
  channel_.emplace(std::move(socket));
  PLEXRL_ASSIGN(socket_watch_, loop_.watch_io(channel_->fd(), EPOLLIN,
                                              [this](std::uint32_t events) { on_socket(events); }));
  return {};
}

void ProcessEngine::on_socket(std::uint32_t events) {
  Status status;
  if ((events & EPOLLOUT) != 0) status = channel_->flush();
  if (status.ok() && (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0)
    status = channel_->receive();
  take_frames();
  if (!channel_) return;
  if (!status.ok()) return end(status.within("engine connection"));
  update_events();
}

void ProcessEngine::take_frames() {
  while (channel_) {
    auto frame = channel_->next();
    if (!frame) return;
    if (const Status status = serve(std::move(*frame)); !status.ok()) return end(status);
  }
}

Status ProcessEngine::serve(wire::Frame frame) {
  PLEXRL_ASSIGN(auto message, wire::decode_engine_message(frame.payload));
  if (state_ == State::kWaitsForHello) return on_hello(message, std::move(frame.fds));
  const auto found = calls_.find(message.request_id);
  if (found == calls_.end())
    return error(Code::PROTOCOL, "the engine answered request %llu, which is not outstanding",
                 static_cast<Number>(message.request_id));
  const ReplyHandler done = std::move(found->second);
  calls_.erase(found);
  answer(done, std::move(message.body), std::move(frame.fds));
  return {};
}

Status ProcessEngine::on_hello(const wire::EngineMessageT& message, std::vector<UniqueFd> fds) {
  const wire::EngineHelloT* const hello = message.body.AsEngineHello();
  if (hello == nullptr) return error(Code::PROTOCOL, "the engine did not begin with a hello");
  // First, so that a wrong one is ended too: it came by the socket that only our engines have.
  if (pid_ == 0) PLEXRL_TRY(watch(hello->pid));
  if (hello->protocol != wire::kEngineProtocolVersion)
    return error(Code::PROTOCOL, "the engine at %s speaks version %u of the protocol, not %u",
                 spec_.socket_path.c_str(), hello->protocol, wire::kEngineProtocolVersion);
  if (hello->engine != spec_.id.value || hello->base != spec_.base_name ||
      hello->mode != spec_.mode)
    return error(Code::PROTOCOL, "the engine at %s is another one (id %llu, base '%s')",
                 spec_.socket_path.c_str(), static_cast<Number>(hello->engine),
                 hello->base.c_str());
  timer_.disarm();
  state_ = State::kUp;
  listener_.on_engine_up(spec_.id, *hello, std::move(fds));
  return {};
}

void ProcessEngine::answer(const ReplyHandler& done, wire::EngineBodyUnion body,
                           std::vector<UniqueFd> fds) {
  if (const wire::FailureT* const failure = body.AsFailure())
    return done(wire::from_failure(*failure));
  done(Reply{std::move(body), std::move(fds)});
}

void ProcessEngine::fail_call(ReplyHandler done, Status why) {
  later([done = std::move(done), why = std::move(why)] { done(why); });
}

void ProcessEngine::call(wire::EngineBodyUnion request, std::vector<int> fds, ReplyHandler done) {
  if (state_ != State::kUp)
    return fail_call(std::move(done), error(Code::ENGINE_DOWN, "the engine is not running"));
  std::vector<UniqueFd> copies;
  for (const int fd : fds) {
    copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copies.back())
      return fail_call(std::move(done), errno_error(Code::IO, errno, "duplicate fd %d", fd));
  }
  wire::EngineMessageT message;
  message.request_id = next_id_++;
  message.body = std::move(request);
  if (Status status = channel_->send(wire::encode(message), std::move(copies)); !status.ok()) {
    fail_call(std::move(done), status);
    // Too large or too many: the channel is good. Anything else ended it.
    if (!channel_->failure().ok()) end(status);
    return;
  }
  calls_.emplace(message.request_id, std::move(done));
  update_events();
}

void ProcessEngine::update_events() {
  if (!channel_) return;
  socket_watch_.set_events((channel_->wants_read() ? EPOLLIN : 0U) |
                           (channel_->wants_write() ? EPOLLOUT : 0U));
}

void ProcessEngine::kill() {
  if (state_ == State::kWaitsForHello || state_ == State::kUp)
    end(error(Code::ENGINE_DOWN, "the engine was killed by plexrld"));
}

void ProcessEngine::remove_files() {
  ::unlink(spec_.socket_path.c_str());
  ::unlink((spec_.socket_path + ".pid").c_str());
}

void ProcessEngine::end(const Status& why) {
  if (state_ == State::kEnding || state_ == State::kOff) return;
  state_ = State::kEnding;
  why_ = why.code() == Code::ENGINE_DOWN ? why : error(Code::ENGINE_DOWN, "%s", why.text().c_str());
  timer_.disarm();
  socket_watch_.reset();
  channel_.reset();
  // By pidfd, so that a reused number cannot be hit. The watch reaps a child and calls down().
  if (pid_ != 0) return static_cast<void>(process_.kill(SIGKILL));
  later([this] { down(why_); });
}

void ProcessEngine::down(const Status& why) {
  state_ = State::kOff;
  timer_.reset();
  socket_watch_.reset();
  channel_.reset();
  remove_files();
  auto calls = std::exchange(calls_, {});
  // A handler or the listener may destroy this engine.
  const std::weak_ptr<bool> alive = alive_;
  for (auto& [id, done] : calls) {
    done(why);
    if (alive.expired()) return;
  }
  if (!silent_) listener_.on_engine_down(spec_.id, why);
}

void ProcessEngine::stop(Duration grace) {
  silent_ = true;
  calls_.clear();
  if (state_ != State::kUp) return kill();
  wire::EngineBodyUnion quit;
  quit.Set(wire::EngineQuitT());
  call(std::move(quit), {}, [](const Result<Reply>&) {});
  auto timer = loop_.make_timer([this] { kill(); });
  if (!timer) return kill();
  timer_ = std::move(*timer);
  timer_.arm(system_clock().now() + grace);
}

void ProcessEngine::detach() {
  state_ = State::kOff;
  pid_ = 0;
  process_.reset();
  timer_.reset();
  socket_watch_.reset();
  channel_.reset();
  calls_.clear();
}

}  // namespace

std::unique_ptr<Engine> make_process_engine(loop::EventLoop& loop, std::string program,
                                            EngineSpec spec, EngineListener& listener,
                                            Duration hello_timeout) {
  return std::make_unique<ProcessEngine>(loop, std::move(program), std::move(spec), listener,
                                         hello_timeout);
}

}  // namespace plexrl::engine
