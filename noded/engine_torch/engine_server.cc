// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/engine_server.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "wire/message.h"

namespace plexrl::worker {
namespace {

// plexrld sends a few commands at a time. Above this many those that may be asked for again are
// refused, and a peer that goes on is broken.
constexpr std::size_t kMaxPending = 1024;
constexpr std::size_t kMostPending = 4 * kMaxPending;

template <class BodyT>
wire::EngineBodyUnion body_of(BodyT value) {
  wire::EngineBodyUnion body;
  body.Set(std::move(value));
  return body;
}

wire::ModelHeldT held(const HeldModel& model) {
  wire::ModelHeldT out;
  out.model = model.id;
  out.mode = model.mode;
  out.lora_rank = model.lora_rank;
  out.seed = model.seed;
  out.step = model.position.step;
  out.version = model.position.version;
  out.applied_seq = model.position.applied_seq;
  out.committed_seq = model.position.committed_seq;
  out.started_seq = model.position.started_seq;
  out.gradients_pending = model.position.gradients_pending;
  const auto add = [&](wire::SegmentKind kind, std::uint64_t bytes,
                       const std::vector<std::uint32_t>& device) {
    auto place = std::make_unique<wire::SegmentPlaceT>();
    place->kind = kind;
    place->bytes = bytes;
    place->device = device;
    out.segments.push_back(std::move(place));
  };
  for (const auto& [kind, segment] : model.segments)
    add(kind, segment.place->bytes(), segment.device);
  // A running op has the KV: its chunks are those of its EngineRunOp, which plexrld remembers.
  if (model.running_op == 0 && model.kv)
    add(wire::SegmentKind::Kv, model.kv->place->bytes(), model.kv->device);
  return out;
}

}  // namespace

EngineServer::EngineServer(ServerOptions options, ModelCode& code, BackendFactory open_device,
                           UniqueFd listener)
    : options_(std::move(options)),
      table_(code, std::move(open_device)),
      link_(std::move(listener), *this),
      ops_(table_, link_, inbox_, [this] { on_stopped(); }) {}

EngineServer::~EngineServer() = default;

Status EngineServer::serve() {
  PLEXRL_TRY(inbox_.open());
  while (!quitting_ || !link_.flushed()) {
    std::array<pollfd, 2> fds = {link_.poll_request(), pollfd{inbox_.fd(), POLLIN, 0}};
    const int wait = orphan_wait();
    if (wait == 0)
      return error(Code::UNAVAILABLE,
                   "no plexrld came for %lld s; what this engine holds is given up",
                   static_cast<long long>(options_.orphan_after.ns / kSecond.ns));
    if (::poll(fds.data(), fds.size(), wait) < 0) {
      if (errno == EINTR) continue;
      return errno_error(Code::IO, errno, "poll");
    }
    if (fds[1].revents != 0) inbox_.run_all();
    link_.handle(fds[0].revents);
    if (!broken_.ok()) return broken_;
    greet_when_quiet();
  }
  return {};
}

int EngineServer::orphan_wait() {
  const TimePoint now = system_clock().now();
  if (link_.connected() || alone_since_.ns == 0) alone_since_ = now;
  if (link_.connected()) return -1;
  const std::int64_t left = alone_since_.ns + options_.orphan_after.ns - now.ns;
  if (left <= 0) return 0;
  // A minute at most, because poll counts in int milliseconds; rounded up so as not to spin.
  return static_cast<int>(std::min(left, 60 * kSecond.ns) / kMillisecond.ns) + 1;
}

void EngineServer::on_request(const Ticket& ticket, wire::EngineBodyUnion body,
                              std::vector<UniqueFd> fds) {
  if (on_memory_request(ticket, body, fds) || on_op_request(ticket, body, fds)) return;
  if (body.AsEngineQuit() != nullptr) {
    quitting_ = true;
    return link_.reply(ticket, body_of(wire::EngineDoneT()));
  }
  answer_status(ticket, error(Code::UNSUPPORTED, "this engine does not know request type %d",
                              static_cast<int>(body.type)));
}

bool EngineServer::on_memory_request(const Ticket& ticket, wire::EngineBodyUnion& body,
                                     std::vector<UniqueFd>& fds) {
  if (const auto* const attach = body.AsEngineAttachPools())
    answer_status(ticket, table_.attach(*attach, std::move(fds)));
  else if (const auto* const sizes = body.AsEngineDescribe())
    describe(ticket, *sizes);
  else if (auto* const resume = body.AsEngineResume())
    enqueue(ticket, make_resume(table_, std::move(*resume)));
  else if (auto* const suspend = body.AsEngineSuspend())
    enqueue(ticket, make_suspend(table_, std::move(*suspend)));
  else if (auto* const commit = body.AsEngineCommit())
    enqueue(ticket, make_commit(table_, ops_, std::move(*commit)));
  else if (body.AsEngineAwaitFill() != nullptr)
    enqueue(ticket, make_await_fill());
  else if (const auto* const forget = body.AsEngineForget())
    enqueue(ticket, make_forget(table_, ops_, *forget));
  else
    return false;
  return true;
}

bool EngineServer::on_op_request(const Ticket& ticket, wire::EngineBodyUnion& body,
                                 std::vector<UniqueFd>& fds) {
  if (auto* const run = body.AsEngineRunOp())
    this->run(ticket, std::move(*run), std::move(fds));
  else if (const auto* const asked_to_yield = body.AsEngineYield())
    yield(ticket, asked_to_yield->op);
  else if (const auto* const dropped = body.AsEngineDropOp())
    drop(ticket, dropped->op);
  else if (const auto* const asked = body.AsEnginePing())
    ping(ticket, *asked);
  else
    return false;
  return true;
}

void EngineServer::answer_status(const Ticket& ticket, const Status& status) {
  link_.reply(ticket, status.ok() ? body_of(wire::EngineDoneT()) : failure_body(status));
}

void EngineServer::describe(const Ticket& ticket, const wire::EngineDescribeT& request) {
  auto description = table_.code().describe(request.mode, request.lora_rank);
  link_.reply(ticket,
              description ? body_of(std::move(*description)) : failure_body(description.error()));
}

// plexrld may drop an op and run it again under the same number without waiting for the answer. The
// drop may stand behind another model's move; were the op begun before, the drop would take the KV
// of the new run.
void EngineServer::run(const Ticket& ticket, wire::EngineRunOpT request,
                       std::vector<UniqueFd> fds) {
  if (const Status status = check_waiting(request); !status.ok())
    return answer_status(ticket, status);
  if (undoing(request.model))
    waiting_.push_back({ticket, std::move(request), std::move(fds)});
  else
    ops_.run(ticket, std::move(request), std::move(fds));
}

// One waits for each model at most, and only generate ops wait beside others, as they will run.
Status EngineServer::check_waiting(const wire::EngineRunOpT& request) const {
  for (const WaitingRun& waiting : waiting_) {
    const bool together = waiting.request.args.AsGenerateArgs() != nullptr &&
                          request.args.AsGenerateArgs() != nullptr &&
                          waiting.request.model != request.model;
    if (!together)
      return error(Code::BUSY, "op %llu waits to run, and op %llu cannot run beside it",
                   static_cast<unsigned long long>(waiting.request.op),
                   static_cast<unsigned long long>(request.op));
  }
  return {};
}

bool EngineServer::undoing(std::uint64_t model) const {
  if (moving_ && moving_->command->undoes_op_of(model)) return true;
  return std::any_of(pending_.begin(), pending_.end(),
                     [&](const Pending& pending) { return pending.command->undoes_op_of(model); });
}

void EngineServer::run_waiting() {
  std::vector<WaitingRun> ready;
  for (WaitingRun& waiting : std::exchange(waiting_, {}))
    (undoing(waiting.request.model) ? waiting_ : ready).push_back(std::move(waiting));
  for (WaitingRun& run : ready) {
    const std::uint64_t op = run.request.op;
    ops_.run(run.ticket, std::move(run.request), std::move(run.fds));
    if (run.yield) ops_.yield(op);
  }
}

void EngineServer::yield(const Ticket& ticket, std::uint64_t op) {
  for (WaitingRun& waiting : waiting_)
    if (waiting.request.op == op) waiting.yield = true;
  ops_.yield(op);  // first: who has the answer may count on it
  link_.reply(ticket, body_of(wire::EngineDoneT()));
}

void EngineServer::drop(const Ticket& ticket, std::uint64_t op) {
  if (op == 0) {
    drop_all_.push_back(ticket);
    ops_.drop_running_sampling();
    return drop_sampling_if_none_runs();
  }
  if (ops_.drop_running(ticket, op)) return;
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const WaitingRun& run) { return run.request.op == op; });
  if (waiting == waiting_.end()) return drop_yielded(ticket, op);
  const WaitingRun run = std::move(*waiting);
  waiting_.erase(waiting);
  answer_status(run.ticket,
                error(Code::CANCELLED, "op %llu was dropped", static_cast<unsigned long long>(op)));
  enqueue(ticket, make_abandon(table_, run.request.model, op, nullptr));
}

// Several yielded ops make several commands; the last one answers.
void EngineServer::drop_yielded(const Ticket& ticket, std::uint64_t op) {
  auto taken = ops_.take_yielded(op);
  if (taken.empty()) return answer_status(ticket, {});
  for (auto& held_op : taken) {
    const bool last = &held_op == &taken.back();
    enqueue(last ? ticket : Ticket{}, make_abandon(table_, held_op->request.model,
                                                   held_op->request.op, std::move(held_op->run)));
  }
}

void EngineServer::drop_sampling_if_none_runs() {
  if (ops_.runs_sampling()) return;
  for (const Ticket& ticket : std::exchange(drop_all_, {})) drop_yielded(ticket, 0);
}

void EngineServer::on_stopped() {
  if (!drop_all_.empty()) drop_sampling_if_none_runs();
  pump();
}

void EngineServer::ping(const Ticket& ticket, const wire::EnginePingT& request) {
  wire::EnginePongT pong;
  pong.nonce = request.nonce;
  pong.running_op = ops_.running_op();
  pong.op_progress = ops_.progress();
  pong.activation_bytes = table_.code().activation_bytes();
  pong.resident_bytes = table_.resident_bytes();
  pong.pinned_bytes = table_.pinned_bytes();
  link_.reply(ticket, body_of(pong));
}

void EngineServer::enqueue(const Ticket& ticket, std::unique_ptr<MemoryCommand> command) {
  if (pending_.size() >= kMaxPending && command->refusable())
    return answer_status(ticket, error(Code::BUSY, "%zu memory commands wait", pending_.size()));
  // What undoes a dropped op is kept: there is one for each op that had yielded.
  if (pending_.size() >= kMostPending && !command->must_run())
    return link_.refuse(error(Code::PROTOCOL, "%zu memory commands wait", pending_.size()));
  pending_.push_back({ticket, std::move(command)});
  pump();
}

// In order, one at a time. A command that is blocked is looked at again when an op has stopped.
void EngineServer::pump() {
  while (!moving_ && !pending_.empty() && !pending_.front().command->blocked()) {
    const auto next = std::make_shared<Pending>(std::move(pending_.front()));
    pending_.pop_front();
    if (const Status status = next->command->prepare(); !status.ok()) {
      answer_status(next->ticket, status);
      continue;
    }
    moving_ = next;
    memory_.submit([this, next] {
      const Status outcome = next->command->work();
      inbox_.post([this, outcome] { finish(outcome); });
      next->command->settle();
    });
  }
}

void EngineServer::finish(const Status& outcome) {
  const auto ended = std::exchange(moving_, nullptr);
  link_.reply(ended->ticket, ended->command->finish(outcome));
  if (!outcome.ok() && ended->command->must_succeed()) {
    broken_ = outcome;
    return;
  }
  if (auto next = ended->command->next()) pending_.push_front({Ticket{}, std::move(next)});
  ops_.command_ended();
  run_waiting();
  pump();
}

// What the lost plexrld asked for and nobody began is not done any more: the next one decides anew.
// Undoing dropped ops goes on.
void EngineServer::on_disconnected() {
  waiting_.clear();
  drop_all_.clear();
  std::erase_if(pending_, [](const Pending& pending) { return !pending.command->must_run(); });
}

// A hello is sent when no move is under way, so that it is the truth.
void EngineServer::greet_when_quiet() {
  if (!link_.waits_for_hello() || moving_ || !pending_.empty()) return;
  auto fds = table_.pool_fds();
  if (!fds) return link_.refuse(fds.error());
  link_.greet(hello(), std::move(*fds));
}

wire::EngineHelloT EngineServer::hello() const {
  wire::EngineHelloT hello;
  hello.protocol = wire::kEngineProtocolVersion;
  hello.engine = options_.id;
  hello.base = options_.base_name;
  hello.mode = options_.mode;
  hello.pid = ::getpid();
  hello.chunk_bytes = table_.chunk_bytes();
  hello.device_chunks = static_cast<std::uint32_t>(table_.device_chunks());
  hello.host_chunks = static_cast<std::uint32_t>(table_.host_chunks());
  for (const auto& [id, model] : table_.all())
    if (model->residency == Residency::kResident)
      hello.models.push_back(std::make_unique<wire::ModelHeldT>(held(*model)));
  ops_.describe(hello);
  return hello;
}

}  // namespace plexrl::worker
