// SPDX-License-Identifier: Apache-2.0
#include "engine/fake_engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "engine/fake_program.h"
#include "wire/message.h"

namespace plexrl::engine {
namespace {

Reply reply_of(wire::EngineBodyUnion body) { return Reply{std::move(body), {}}; }

template <class Message>
Reply reply_with(Message message) {
  Reply reply;
  reply.body.Set(std::move(message));
  return reply;
}

bool yields(const wire::EngineRunOpT& op) {
  return op.args.AsGenerateArgs() != nullptr || op.args.AsLogprobsArgs() != nullptr ||
         op.args.AsForwardBackwardArgs() != nullptr;
}

class FakeEngineImpl final : public FakeEngine {
 public:
  FakeEngineImpl(std::unique_ptr<FakeTime> time, EngineSpec spec, EngineListener& listener,
                 FakeEngineOptions options)
      : time_(std::move(time)), spec_(std::move(spec)), listener_(listener), options_(options) {}

  void start() override;
  void call(wire::EngineBodyUnion request, std::vector<int> fds, ReplyHandler done) override;
  void kill() override { die("killed by signal 9"); }
  void stop(Duration) override;
  void detach() override;
  [[nodiscard]] const EngineSpec& spec() const override { return spec_; }
  [[nodiscard]] int pid() const override { return program_ ? ::getpid() : 0; }
  FakeEngineOptions& options() override { return options_; }
  [[nodiscard]] std::uint64_t ops_started() const override { return ops_started_; }
  void end_fills() override;

 private:
  struct Running {
    wire::EngineRunOpT request;
    std::uint64_t call = 0;  // 0: plexrld went away
    TimePoint since;
    TimePoint ends;
    bool yield_asked = false;
    UniqueFd file;  // of a save or load
  };

  // Runs later, from the loop, unless the engine object is gone by then.
  void later(std::function<void()> callback);
  void answer(std::uint64_t call, Result<Reply> result);
  void die(const char* why);

  void ask_memory(std::uint64_t call, const wire::EngineBodyUnion& request,
                  const std::vector<int>& fds);
  void run_op(std::uint64_t call, const wire::EngineRunOpT& request, const std::vector<int>& fds);
  void begin_op(std::uint64_t call, wire::EngineRunOpT request, const std::vector<int>& fds);
  void wait_until(TimePoint when);
  void wake();
  void finish_op();
  void yield_op();
  void ask_yield(std::uint64_t op);
  void drop_op(std::uint64_t op);
  void end_run(Result<Reply> result);
  void describe_last(wire::EngineHelloT& hello) const;
  [[nodiscard]] Reply pong(std::uint64_t nonce) const;
  [[nodiscard]] Duration op_time(std::uint64_t op);

  const std::unique_ptr<FakeTime> time_;
  EngineSpec spec_;
  EngineListener& listener_;
  FakeEngineOptions options_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::unique_ptr<FakeProgram> program_;
  bool connected_ = false;
  std::uint32_t failed_starts_ = 0;
  std::uint64_t ops_started_ = 0;
  std::uint64_t last_call_ = 0;
  std::map<std::uint64_t, ReplyHandler> outstanding_;
  std::vector<std::pair<std::uint64_t, wire::EngineBodyUnion>> behind_fill_;
  std::optional<Running> running_;
  struct Held {
    std::uint64_t model = 0;
    bool training = false;
    Duration left;
  };
  std::map<std::uint64_t, Held> yielded_;
  struct Last {  // the op that ended last, for a plexrld that did not hear of it
    std::uint64_t op = 0;
    bool training = false;
    Result<wire::EngineBodyUnion> answer = error(Code::INTERNAL, "none");
  };
  Last last_;
  std::unique_ptr<FakeTime::Alarm> alarm_;
};

void FakeEngineImpl::later(std::function<void()> callback) {
  time_->post([alive = std::weak_ptr<int>(alive_), callback = std::move(callback)] {
    if (!alive.expired()) callback();
  });
}

void FakeEngineImpl::start() {
  if (failed_starts_ < options_.fail_starts) {
    ++failed_starts_;
    return later([this] {
      listener_.on_engine_down(spec_.id, error(Code::ENGINE_DOWN, "start: a fault on demand"));
    });
  }
  if (!program_) program_ = std::make_unique<FakeProgram>(spec_, options_);
  connected_ = true;
  later([this] {
    if (!connected_) return;
    wire::EngineHelloT hello = program_->hello();
    if (running_) hello.running_op = running_->request.op;
    describe_last(hello);
    listener_.on_engine_up(spec_.id, hello, program_->pool_fds());
  });
}

void FakeEngineImpl::call(wire::EngineBodyUnion request, std::vector<int> fds, ReplyHandler done) {
  const std::uint64_t call = ++last_call_;
  outstanding_.emplace(call, std::move(done));
  if (!connected_) return answer(call, error(Code::ENGINE_DOWN, "the engine is not running"));
  if (options_.silent) return;
  wire::EngineDoneT ok;
  if (const auto* op = request.AsEngineRunOp()) return run_op(call, *op, fds);
  if (const auto* yield = request.AsEngineYield()) {
    ask_yield(yield->op);
    return answer(call, reply_with(ok));
  }
  if (const auto* drop = request.AsEngineDropOp()) {
    drop_op(drop->op);
    return answer(call, reply_with(ok));
  }
  if (const auto* ping = request.AsEnginePing()) return answer(call, pong(ping->nonce));
  if (!behind_fill_.empty() || (options_.hold_fills && request.AsEngineAwaitFill() != nullptr)) {
    behind_fill_.emplace_back(call, std::move(request));
    return;
  }
  ask_memory(call, request, fds);
}

void FakeEngineImpl::ask_memory(std::uint64_t call, const wire::EngineBodyUnion& request,
                                const std::vector<int>& fds) {
  auto body = program_->handle(request, fds);
  if (const auto* forget = request.AsEngineForget())
    std::erase_if(yielded_,
                  [forget](const auto& entry) { return entry.second.model == forget->model; });
  if (!body) return answer(call, body.error());
  answer(call, reply_of(std::move(body).value()));
}

void FakeEngineImpl::end_fills() {
  options_.hold_fills = false;
  for (const auto& [call, request] : std::exchange(behind_fill_, {})) ask_memory(call, request, {});
}

// Handlers take the reply by value; std::function copies, so the reply is shared until it is taken.
void FakeEngineImpl::answer(std::uint64_t call, Result<Reply> result) {
  auto shared = std::make_shared<Result<Reply>>(std::move(result));
  later([this, call, shared] {
    const auto found = outstanding_.find(call);
    if (found == outstanding_.end()) return;
    const ReplyHandler handler = std::move(found->second);
    outstanding_.erase(found);
    handler(std::move(*shared));
  });
}

void FakeEngineImpl::die(const char* why) {
  if (!program_) return;
  program_.reset();
  connected_ = false;
  running_.reset();
  yielded_.clear();
  behind_fill_.clear();
  last_ = {};
  alarm_.reset();
  const Status status = error(Code::ENGINE_DOWN, "engine %llu: %s",
                              static_cast<unsigned long long>(spec_.id.value), why);
  for (const auto& [call, handler] : outstanding_) answer(call, status);
  later([this, status] { listener_.on_engine_down(spec_.id, status); });
}

void FakeEngineImpl::stop(Duration) {
  outstanding_.clear();
  behind_fill_.clear();
  connected_ = false;
  running_.reset();
  alarm_.reset();
  program_.reset();
  alive_ = std::make_shared<int>(0);  // no callback follows
}

void FakeEngineImpl::detach() {
  outstanding_.clear();
  behind_fill_.clear();
  connected_ = false;
  if (running_) running_->call = 0;
  alive_ = std::make_shared<int>(0);
  // The end of an op without time was on its way; it still has to come.
  if (running_) wait_until(running_->ends);
}

Reply FakeEngineImpl::pong(std::uint64_t nonce) const {
  wire::EnginePongT pong;
  pong.nonce = nonce;
  if (running_) pong.running_op = running_->request.op;
  pong.op_progress = ops_started_;
  pong.resident_bytes = program_->resident_bytes();
  return reply_with(pong);
}

// ---- ops ----

void FakeEngineImpl::run_op(std::uint64_t call, const wire::EngineRunOpT& request,
                            const std::vector<int>& fds) {
  if (request.op != 0 && last_.op == request.op) {
    if (!last_.answer) return answer(call, last_.answer.error());
    return answer(call, reply_of(*last_.answer));
  }
  if (running_ && running_->request.op == request.op) {
    running_->call = call;
    return;
  }
  if (running_)
    return answer(call, error(Code::INVALID_ARGUMENT, "op %llu came while op %llu runs",
                              static_cast<unsigned long long>(request.op),
                              static_cast<unsigned long long>(running_->request.op)));
  begin_op(call, request, fds);
}

void FakeEngineImpl::begin_op(std::uint64_t call, wire::EngineRunOpT request,
                              const std::vector<int>& fds) {
  if (const Status status = program_->begin(request); !status.ok()) return answer(call, status);
  ++ops_started_;
  last_ = {};
  if (options_.die_at_op == ops_started_) return die("killed by signal 9");
  const TimePoint now = time_->now();
  const Duration time = op_time(request.op);
  UniqueFd file(fds.empty() ? -1 : ::fcntl(fds.front(), F_DUPFD_CLOEXEC, 0));
  running_ = Running{std::move(request), call, now, now + time, false, std::move(file)};
  if (options_.die_in_op == ops_started_) return wait_until(now + Duration{time.ns / 2});
  if (time.ns > 0) return wait_until(running_->ends);
  later([this, op = running_->request.op] {
    if (running_ && running_->request.op == op) wake();
  });
}

Duration FakeEngineImpl::op_time(std::uint64_t op) {
  const auto held = yielded_.find(op);
  if (held == yielded_.end()) return options_.op_time;
  const Duration left = held->second.left;
  yielded_.erase(held);
  return left;
}

void FakeEngineImpl::wait_until(TimePoint when) {
  alarm_ = time_->call_at(when, [this] { wake(); });
}

void FakeEngineImpl::wake() {
  if (!running_) return;
  const TimePoint now = time_->now();
  if (options_.die_in_op != 0 && options_.die_in_op == ops_started_)
    return die("killed by signal 9");
  if (now >= running_->ends) return finish_op();
  if (running_->yield_asked) return yield_op();
  wait_until(running_->ends);
}

void FakeEngineImpl::finish_op() {
  const wire::EngineRunOpT& request = running_->request;
  auto value = program_->run(request, running_->file.get());
  program_->unmap_kv(request.model);
  if (!value) return end_run(value.error());
  wire::EngineOpDoneT done;
  done.op = request.op;
  done.value = std::move(value).value();
  done.run_ns = static_cast<std::uint64_t>((time_->now() - running_->since).ns);
  end_run(reply_with(std::move(done)));
}

void FakeEngineImpl::yield_op() {
  wire::EngineYieldedT yielded;
  const TimePoint now = time_->now();
  yielded.op = running_->request.op;
  yielded.run_ns = static_cast<std::uint64_t>((now - running_->since).ns);
  program_->yielded(running_->request);
  yielded_[yielded.op] = {running_->request.model, running_->request.seq > 0, running_->ends - now};
  end_run(reply_with(yielded));
}

void FakeEngineImpl::end_run(Result<Reply> result) {
  const Running ended = std::move(*running_);
  running_.reset();
  const bool yielded = result && result->body.AsEngineYielded() != nullptr;
  if (!yielded) {
    last_ = {ended.request.op, ended.request.seq > 0, error(Code::INTERNAL, "none")};
    if (result) last_.answer = result->body;
    if (!result) last_.answer = result.error();
  }
  if (ended.call != 0) answer(ended.call, std::move(result));
}

void FakeEngineImpl::describe_last(wire::EngineHelloT& hello) const {
  hello.finished_op = last_.op;
  if (last_.op == 0) return;
  if (!last_.answer) {
    hello.finished_failure =
        std::make_unique<wire::FailureT>(wire::to_failure(last_.answer.error()));
  } else if (const auto* const done = last_.answer->AsEngineOpDone()) {
    hello.finished = std::make_unique<wire::EngineOpDoneT>(*done);
  }
}

void FakeEngineImpl::ask_yield(std::uint64_t op) {
  if (!running_ || running_->request.op != op || running_->yield_asked) return;
  if (options_.never_yield || !yields(running_->request)) return;
  running_->yield_asked = true;
  const TimePoint point = time_->now() + options_.yield_every;
  if (point < running_->ends) wait_until(point);
}

void FakeEngineImpl::drop_op(std::uint64_t op) {
  for (auto held = yielded_.begin(); held != yielded_.end();) {
    const bool drops = op == 0 ? !held->second.training : held->first == op;
    if (drops) program_->dropped(held->second.model, held->first);
    held = drops ? yielded_.erase(held) : std::next(held);
  }
  if (op == 0 ? !last_.training : last_.op == op) last_ = {};
  if (op == 0 || !running_ || running_->request.op != op) return;
  program_->dropped(running_->request.model, op);
  alarm_.reset();
  end_run(error(Code::CANCELLED, "op %llu was dropped", static_cast<unsigned long long>(op)));
  last_ = {};
}

}  // namespace

std::unique_ptr<FakeEngine> make_fake_engine(std::unique_ptr<FakeTime> time, EngineSpec spec,
                                             EngineListener& listener, FakeEngineOptions options) {
  return std::make_unique<FakeEngineImpl>(std::move(time), std::move(spec), listener, options);
}

std::unique_ptr<FakeEngine> make_fake_engine(loop::EventLoop& loop, EngineSpec spec,
                                             EngineListener& listener, FakeEngineOptions options) {
  return make_fake_engine(make_loop_time(loop), std::move(spec), listener, options);
}

}  // namespace plexrl::engine
