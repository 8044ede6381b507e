// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/op_board.h"

#include <algorithm>
#include <utility>

#include "wire/message.h"

namespace plexrl::worker {
namespace {

// One KV per model and few models per engine; far above what a scheduler lets happen.
constexpr std::size_t kMaxYielded = 1024;

using Number = unsigned long long;

template <class BodyT>
wire::EngineBodyUnion body_of(BodyT value) {
  wire::EngineBodyUnion body;
  body.Set(std::move(value));
  return body;
}

}  // namespace

OpBoard::OpBoard(ModelTable& table, EngineLink& link, Inbox& inbox,
                 std::function<void()> on_stopped)
    : table_(table),
      link_(link),
      inbox_(inbox),
      on_stopped_(std::move(on_stopped)),
      batch_(table, activations_, progress_, [this](const HeldOp& op, OpOutcome outcome) {
        auto shared = std::make_shared<OpOutcome>(std::move(outcome));
        inbox_.post(
            [this, number = op.request.op, shared] { stopped(number, std::move(*shared)); });
      }) {}

OpBoard::~OpBoard() {
  for (const auto& [number, op] : running_) op->stop.yield = true;
}

std::uint64_t OpBoard::running_op() const noexcept {
  return running_.empty() ? 0 : running_.begin()->first;
}

HeldOp* OpBoard::find_running(std::uint64_t op) noexcept {
  const auto found = running_.find(op);
  return found == running_.end() ? nullptr : found->second.get();
}

bool OpBoard::writes_now(std::uint64_t model) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    return entry.second->request.model == model && entry.second->writes_committed;
  });
}

bool OpBoard::has_begun_to_write(std::uint64_t model) const {
  for (const auto& [id, op] : yielded_)
    if (op->request.model == model && op->writes_committed && op->run) return true;
  return false;
}

bool OpBoard::runs_sampling() const noexcept {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& entry) { return entry.second->request.seq == 0; });
}

void OpBoard::run(const Ticket& ticket, wire::EngineRunOpT request, std::vector<UniqueFd> fds) {
  if (answer_known(ticket, request)) return;
  auto model = check(request);
  if (!model) return link_.reply(ticket, failure_body(model.error()));
  const std::uint64_t number = request.op;
  std::uint64_t& started = (*model)->position.started_seq;
  started = std::max(started, request.seq);
  HeldOp& op = *(running_[number] = admit(std::move(request), std::move(fds)));
  op.ticket = ticket;
  op.arrived = system_clock().now();
  op.stop.yield = op.stop.drop = false;
  (*model)->running_op = number;
  last_ = {};
  start_if_free();
}

// A restarted plexrld asks again for an op that runs or whose result it did not take.
bool OpBoard::answer_known(const Ticket& ticket, const wire::EngineRunOpT& request) {
  if (HeldOp* const op = find_running(request.op)) {
    op->ticket = ticket;
    return true;
  }
  if (request.op == 0 || last_.op != request.op) return false;
  link_.reply(ticket, last_.body);
  return true;
}

Result<HeldModel*> OpBoard::check(const wire::EngineRunOpT& request) const {
  if (request.op == 0) return error(Code::INVALID_ARGUMENT, "an op needs a number above 0");
  if (yielded_.size() >= kMaxYielded && !yielded_.contains(request.op))
    return error(Code::BUSY, "%zu ops have yielded; finish or drop some", yielded_.size());
  if (const auto known = yielded_.find(request.op);
      known != yielded_.end() && known->second->request.model != request.model)
    return error(Code::INVALID_ARGUMENT, "op %llu belongs to another model",
                 static_cast<Number>(request.op));
  HeldModel* const model = table_.find(request.model);
  if (model == nullptr || model->residency != Residency::kResident)
    return error(Code::INVALID_ARGUMENT, "model %llu is not resident",
                 static_cast<Number>(request.model));
  if (model->is_base())
    return error(Code::INVALID_ARGUMENT, "model 0 is the base; ops name a model");
  if (model->mode != wire::TrainMode::Full && table_.find(0)->residency != Residency::kResident)
    return error(Code::INVALID_ARGUMENT, "the base of model %llu is not resident",
                 static_cast<Number>(request.model));
  PLEXRL_TRY(check_free(*model, request));
  PLEXRL_TRY(check_kv(*model, request));
  return model;
}

Status OpBoard::check_free(const HeldModel& model, const wire::EngineRunOpT& request) const {
  if (model.running_op != 0)
    return error(Code::BUSY, "op %llu of model %llu runs", static_cast<Number>(model.running_op),
                 static_cast<Number>(model.id));
  if (running_.empty() || joins(model, args_of(request))) return {};
  return error(Code::BUSY, "op %llu runs, and op %llu cannot run beside it",
               static_cast<Number>(running_op()), static_cast<Number>(request.op));
}

// One that goes on has its arguments here.
const wire::OpArgsUnion& OpBoard::args_of(const wire::EngineRunOpT& request) const {
  const auto known = yielded_.find(request.op);
  return known == yielded_.end() ? request.args : known->second->request.args;
}

// Adapters have one base here; a full-parameter model's rows are of weights of its own.
bool OpBoard::joins(const HeldModel& model, const wire::OpArgsUnion& args) const {
  const auto adapter_samples = [](const HeldModel& of, const wire::OpArgsUnion& what) {
    return of.mode != wire::TrainMode::Full && what.AsGenerateArgs() != nullptr;
  };
  return adapter_samples(model, args) &&
         std::all_of(running_.begin(), running_.end(), [&](const auto& entry) {
           const wire::EngineRunOpT& other = entry.second->request;
           return adapter_samples(*table_.find(other.model), other.args);
         });
}

Status OpBoard::check_kv(const HeldModel& model, const wire::EngineRunOpT& request) const {
  if (model.kv && model.kv_op == request.op) return {};
  if (!request.kv || request.kv->device.empty()) return {};
  if (model.kv)
    return error(Code::BUSY, "model %llu holds the KV of op %llu; finish or drop it first",
                 static_cast<Number>(model.id), static_cast<Number>(model.kv_op));
  return table_.check_place(*request.kv, request.kv->bytes);
}

std::unique_ptr<HeldOp> OpBoard::admit(wire::EngineRunOpT request, std::vector<UniqueFd> fds) {
  if (auto known = yielded_.extract(request.op); !known.empty()) return std::move(known.mapped());
  auto op = std::make_unique<HeldOp>();
  op->request = std::move(request);
  if (!fds.empty()) op->fd = std::move(fds.front());
  op->writes_committed = table_.code().writes_committed_state(op->request.args);
  return op;
}

void OpBoard::start_if_free() {
  for (const auto& [number, op] : running_)
    if (!op->computing) start(*table_.find(op->request.model), *op);
}

void OpBoard::start(HeldModel& model, HeldOp& op) {
  const bool whole = table_.code().needs_whole_state(op.request.args);
  if (whole && model.filling) return;
  if (op.writes_committed && model.commits > 0) return;
  const TimePoint free = whole ? std::max(op.arrived, model.filled) : op.arrived;
  op.switch_stall_ns = static_cast<std::uint64_t>((free - op.arrived).ns);
  if (op.writes_committed)
    op.commit_stall_ns = static_cast<std::uint64_t>((system_clock().now() - free).ns);
  op.computing = true;
  if (op.request.args.AsGenerateArgs() != nullptr) {
    if (batch_.join(model, op)) compute_.submit([this] { batch_.run(); });
    return;
  }
  compute_.submit([this, &model, &op] {
    activations_.begin(table_.code(), model.id);
    auto outcome = std::make_shared<OpOutcome>(run_op(table_, model, op, progress_));
    inbox_.post([this, number = op.request.op, outcome] { stopped(number, std::move(*outcome)); });
  });
}

void OpBoard::stopped(std::uint64_t number, OpOutcome outcome) {
  const auto running = running_.find(number);
  HeldModel& model = *table_.find(running->second->request.model);
  running->second->computing = false;
  const bool yields = outcome.kind == OpOutcome::Kind::kYielded;
  // The drop came after the op had seen the yield: let it run on to its undoing.
  if (yields && running->second->drop && running->second->run)
    return start(model, *running->second);
  const std::unique_ptr<HeldOp>& op = running->second;
  model.running_op = 0;
  if (outcome.kind == OpOutcome::Kind::kFinished) note_position(model, *op);
  const bool kept = !yields && !op->drop && op->request.args.AsGenerateArgs() == nullptr;
  wire::EngineBodyUnion body = reply_body(*op, std::move(outcome));
  if (kept) last_ = {number, op->request.seq, body};
  link_.reply(op->ticket, std::move(body));
  if (op->drop) link_.reply(*op->drop, body_of(wire::EngineDoneT()));
  if (yields) yielded_.emplace(number, std::move(running->second));
  running_.erase(running);
  on_stopped_();
}

wire::EngineBodyUnion OpBoard::reply_body(const HeldOp& op, OpOutcome outcome) {
  switch (outcome.kind) {
    case OpOutcome::Kind::kFinished: {
      wire::EngineOpDoneT done;
      done.op = op.request.op;
      done.value = std::move(outcome.value);
      done.run_ns = outcome.run_ns;
      done.commit_stall_ns = op.commit_stall_ns;
      done.switch_stall_ns = op.switch_stall_ns;
      done.tokens = outcome.tokens;
      return body_of(std::move(done));
    }
    case OpOutcome::Kind::kYielded: {
      wire::EngineYieldedT yielded;
      yielded.op = op.request.op;
      yielded.run_ns = outcome.run_ns;
      return body_of(yielded);
    }
    case OpOutcome::Kind::kDropped:
      return failure_body(
          error(Code::CANCELLED, "op %llu was dropped", static_cast<Number>(op.request.op)));
    case OpOutcome::Kind::kFailed:
      break;
  }
  return failure_body(outcome.error);
}

void OpBoard::yield(std::uint64_t number) {
  HeldOp* const op = find_running(number);
  if (op == nullptr) return;
  op->stop.yield = true;
  if (op->computing) return;
  OpOutcome outcome;
  outcome.kind = OpOutcome::Kind::kYielded;
  stopped(number, std::move(outcome));
}

bool OpBoard::drop_running(const Ticket& ticket, std::uint64_t number) {
  HeldOp* const op = find_running(number);
  if (op == nullptr) return false;
  if (op->drop)
    link_.reply(ticket, failure_body(error(Code::INVALID_ARGUMENT, "op %llu is being dropped",
                                           static_cast<Number>(number))));
  else
    drop(*op, ticket);
  return true;
}

void OpBoard::drop_running_sampling() {
  std::vector<HeldOp*> sampling;
  for (const auto& [number, op] : running_)
    if (op->request.seq == 0 && !op->drop) sampling.push_back(op.get());
  for (HeldOp* const op : sampling) drop(*op, Ticket{});
}

void OpBoard::drop(HeldOp& op, const Ticket& ticket) {
  op.drop = ticket;
  op.stop.drop = true;
  if (op.computing) return;
  OpOutcome outcome;
  outcome.kind = OpOutcome::Kind::kDropped;
  stopped(op.request.op, std::move(outcome));
}

std::vector<std::unique_ptr<HeldOp>> OpBoard::take_yielded(std::uint64_t op) {
  std::vector<std::unique_ptr<HeldOp>> taken;
  if (last_.op == op || (op == 0 && last_.seq == 0)) last_ = {};
  for (auto at = yielded_.begin(); at != yielded_.end();) {
    const bool wanted = at->first == op || (op == 0 && at->second->request.seq == 0);
    if (wanted) taken.push_back(std::move(at->second));
    at = wanted ? yielded_.erase(at) : std::next(at);
  }
  return taken;
}

void OpBoard::forget_model(std::uint64_t model) {
  std::erase_if(yielded_, [&](const auto& entry) { return entry.second->request.model == model; });
}

void OpBoard::describe(wire::EngineHelloT& hello) const {
  hello.running_op = running_op();
  hello.finished_op = last_.op;
  if (const auto* const done = last_.body.AsEngineOpDone())
    hello.finished = std::make_unique<wire::EngineOpDoneT>(*done);
  if (const auto* const failure = last_.body.AsFailure())
    hello.finished_failure = std::make_unique<wire::FailureT>(*failure);
}

}  // namespace plexrl::worker
