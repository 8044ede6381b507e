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
    std::unique_ptr<FakeTime::Alarm> alarm;
  };

  // Runs later, from the loop, unless the engine object is gone by then.
  void later(std::function<void()> callback);
  void answer(std::uint64_t call, Result<Reply> result);
  void die(const char* why);

  void ask_memory(std::uint64_t call, const wire::EngineBodyUnion& request,
                  const std::vector<int>& fds);
  void run_op(std::uint64_t call, const wire::EngineRunOpT& request, const std::vector<int>& fds);
  void begin_op(std::uint64_t call, wire::EngineRunOpT request, const std::vector<int>& fds);
  [[nodiscard]] Running* find_running(std::uint64_t op);
  [[nodiscard]] bool joins(const wire::EngineRunOpT& request) const;
  void wait_until(Running& op, TimePoint when);
  void wake(std::uint64_t number);
  [[nodiscard]] bool is_deadly(const wire::EngineRunOpT& request) const;
  void finish_op(Running& op);
  void yield_op(Running& op);
  void ask_yield(std::uint64_t number);
  void drop_op(std::uint64_t number);
  void drop_running(std::uint64_t number);
  void end_run(Running& op, Result<Reply> result);
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
  std::map<std::uint64_t, Running> running_;
  struct Held {
    std::uint64_t model = 0;
    bool training = false;
    Duration left;
  };
  std::map<std::uint64_t, Held> yielded_;
  struct Last {  // the op that ended last, no generate, for a plexrld that did not hear of it
    std::uint64_t op = 0;
    bool training = false;
    Result<wire::EngineBodyUnion> answer = error(Code::INTERNAL, "none");
  };
  Last last_;
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
    if (!running_.empty()) hello.running_op = running_.begin()->first;
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
  running_.clear();
  yielded_.clear();
  behind_fill_.clear();
  last_ = {};
  const Status status = error(Code::ENGINE_DOWN, "engine %llu: %s",
                              static_cast<unsigned long long>(spec_.id.value), why);
  for (const auto& [call, handler] : outstanding_) answer(call, status);
  later([this, status] { listener_.on_engine_down(spec_.id, status); });
}

void FakeEngineImpl::stop(Duration) {
  outstanding_.clear();
  behind_fill_.clear();
  connected_ = false;
  running_.clear();
  program_.reset();
  alive_ = std::make_shared<int>(0);  // no callback follows
}

void FakeEngineImpl::detach() {
  outstanding_.clear();
  behind_fill_.clear();
  connected_ = false;
  alive_ = std::make_shared<int>(0);
  // The end of an op without time was on its way; it still has to come.
  for (auto& [number, op] : running_) {
    op.call = 0;
    wait_until(op, op.ends);
  }
}

Reply FakeEngineImpl::pong(std::uint64_t nonce) const {
  wire::EnginePongT pong;
  pong.nonce = nonce;
  if (!running_.empty()) pong.running_op = running_.begin()->first;
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
  if (Running* const op = find_running(request.op)) {
    op->call = call;
    return;
  }
  if (!running_.empty() && !joins(request))
    return answer(call, error(Code::INVALID_ARGUMENT, "op %llu came while op %llu runs",
                              static_cast<unsigned long long>(request.op),
                              static_cast<unsigned long long>(running_.begin()->first)));
  begin_op(call, request, fds);
}

FakeEngineImpl::Running* FakeEngineImpl::find_running(std::uint64_t op) {
  const auto found = running_.find(op);
  return found == running_.end() ? nullptr : &found->second;
}

// Generate ops of other adapters run beside those that run.
bool FakeEngineImpl::joins(const wire::EngineRunOpT& request) const {
  return spec_.mode == wire::TrainMode::Lora && request.args.AsGenerateArgs() != nullptr &&
         std::all_of(running_.begin(), running_.end(), [&](const auto& entry) {
           const wire::EngineRunOpT& other = entry.second.request;
           return other.args.AsGenerateArgs() != nullptr && other.model != request.model;
         });
}

void FakeEngineImpl::begin_op(std::uint64_t call, wire::EngineRunOpT request,
                              const std::vector<int>& fds) {
  if (const Status status = program_->begin(request); !status.ok()) return answer(call, status);
  ++ops_started_;
  last_ = {};
  if (options_.die_at_op == ops_started_) return die("killed by signal 9");
  const TimePoint now = time_->now();
  const std::uint64_t number = request.op;
  const Duration time = op_time(number);
  UniqueFd file(fds.empty() ? -1 : ::fcntl(fds.front(), F_DUPFD_CLOEXEC, 0));
  Running& op = running_[number];
  op = Running{std::move(request), call, now, now + time, false, std::move(file), nullptr};
  if (options_.die_in_op == ops_started_) return wait_until(op, now + Duration{time.ns / 2});
  if (time.ns > 0) return wait_until(op, op.ends);
  later([this, number] { wake(number); });
}

Duration FakeEngineImpl::op_time(std::uint64_t op) {
  const auto held = yielded_.find(op);
  if (held == yielded_.end()) return options_.op_time;
  const Duration left = held->second.left;
  yielded_.erase(held);
  return left;
}

void FakeEngineImpl::wait_until(Running& op, TimePoint when) {
  op.alarm = time_->call_at(when, [this, number = op.request.op] { wake(number); });
}

void FakeEngineImpl::wake(std::uint64_t number) {
  Running* const op = find_running(number);
  if (op == nullptr) return;
  const TimePoint now = time_->now();
  if (options_.die_in_op != 0 && options_.die_in_op == ops_started_)
    return die("killed by signal 9");
  if (now >= op->ends) return finish_op(*op);
  if (op->yield_asked) return yield_op(*op);
  wait_until(*op, op->ends);
}

bool FakeEngineImpl::is_deadly(const wire::EngineRunOpT& request) const {
  const auto* const generate = request.args.AsGenerateArgs();
  const std::uint64_t seed = options_.die_at_seed;
  if (seed == 0 || generate == nullptr) return false;
  return generate->seed == seed ||
         std::any_of(generate->groups.begin(), generate->groups.end(),
                     [seed](const auto& group) { return group->seed == seed; });
}

void FakeEngineImpl::finish_op(Running& op) {
  const wire::EngineRunOpT& request = op.request;
  if (is_deadly(request)) return die("killed by signal 9");
  auto value = program_->run(request, op.file.get());
  program_->unmap_kv(request.model);
  if (!value) return end_run(op, value.error());
  wire::EngineOpDoneT done;
  done.op = request.op;
  done.value = std::move(value).value();
  done.run_ns = static_cast<std::uint64_t>((time_->now() - op.since).ns);
  end_run(op, reply_with(std::move(done)));
}

void FakeEngineImpl::yield_op(Running& op) {
  wire::EngineYieldedT yielded;
  const TimePoint now = time_->now();
  yielded.op = op.request.op;
  yielded.run_ns = static_cast<std::uint64_t>((now - op.since).ns);
  program_->yielded(op.request);
  yielded_[yielded.op] = {op.request.model, op.request.seq > 0, op.ends - now};
  end_run(op, reply_with(yielded));
}

void FakeEngineImpl::end_run(Running& op, Result<Reply> result) {
  const auto ended = running_.extract(op.request.op);
  const wire::EngineRunOpT& request = ended.mapped().request;
  const bool yielded = result && result->body.AsEngineYielded() != nullptr;
  if (!yielded && request.args.AsGenerateArgs() == nullptr) {
    last_ = {request.op, request.seq > 0, error(Code::INTERNAL, "none")};
    if (result) last_.answer = result->body;
    if (!result) last_.answer = result.error();
  }
  if (ended.mapped().call != 0) answer(ended.mapped().call, std::move(result));
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

void FakeEngineImpl::ask_yield(std::uint64_t number) {
  Running* const op = find_running(number);
  if (op == nullptr || op->yield_asked) return;
  if (options_.never_yield || !yields(op->request)) return;
  op->yield_asked = true;
  const TimePoint point = time_->now() + options_.yield_every;
  if (point < op->ends) wait_until(*op, point);
}

void FakeEngineImpl::drop_op(std::uint64_t number) {
  for (auto held = yielded_.begin(); held != yielded_.end();) {
    const bool drops = number == 0 ? !held->second.training : held->first == number;
    if (drops) program_->dropped(held->second.model, held->first);
    held = drops ? yielded_.erase(held) : std::next(held);
  }
  if (number == 0 ? !last_.training : last_.op == number) last_ = {};
  std::vector<std::uint64_t> running;
  for (const auto& [each, op] : running_)
    if (number == 0 ? op.request.seq == 0 : each == number) running.push_back(each);
  for (const std::uint64_t each : running) drop_running(each);
}

void FakeEngineImpl::drop_running(std::uint64_t number) {
  Running& op = running_.at(number);
  program_->dropped(op.request.model, number);
  end_run(op,
          error(Code::CANCELLED, "op %llu was dropped", static_cast<unsigned long long>(number)));
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
