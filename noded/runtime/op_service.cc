// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_service.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "core/int_math.h"

namespace plexrl::runtime {
namespace {

constexpr std::uint32_t kRetryAfterMs = 100;

OpOutcome failure(const Status& status) {
  OpOutcome outcome;
  outcome.status = status;
  if (status.scope() == Scope::kRetry) outcome.retry_after_ms = kRetryAfterMs;
  return outcome;
}

ModelFlow::Gate gate_of(const Op& op) {
  if (op.publish()) return ModelFlow::Gate::kPublish;
  return op.kind == core::OpKind::kLoad ? ModelFlow::Gate::kLoad : ModelFlow::Gate::kNone;
}

std::uint64_t whole_chunks(std::uint64_t bytes, std::uint64_t chunk_bytes) {
  return (bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

unsigned long long number(std::uint64_t value) { return value; }

}  // namespace

// ---- submit ----

void OpService::submit(SubmitRequest request) {
  Model* const model = parts_.models.find(ModelId{request.submit.model});
  if (model == nullptr || model->tenant != request.tenant || model->removing)
    return request.handler(failure(
        error(Code::NOT_FOUND, "this job has no model %llu", number(request.submit.model))));
  auto size = check_op(request.submit, *model, static_cast<bool>(request.fd));
  if (size) size->kv_bytes = whole_chunks(size->kv_bytes, parts_.chunk_bytes);
  Status refusal = size ? check_capacity(*model, *size) : size.error();
  if (!request.refusal.ok()) refusal = request.refusal;
  // A training number is used up by a refusal too, so it goes through the stream.
  const bool numbered = request.submit.seq > 0 && model->mode != wire::TrainMode::None;
  if (numbered)
    return submit_training(std::move(request), *model, refusal, size.value_or(OpSize{}));
  if (model->lost) {
    if (const Status room = parts_.ops.room_for(request.tenant); !room.ok())
      return request.handler(failure(room));
    Op& op = add_op(std::move(request), OpSize{});
    op.state = OpState::kGap;  // it never runs
    op.refusal = parts_.log.loss(model->id);
    // On disk first; and who has gone by then was not told.
    return parts_.log.when_kept(op.model, [this, id = op.id] {
      Op* const waiting = parts_.ops.find(id);
      if (waiting == nullptr) return;
      const ModelId lost = waiting->model;
      const Status loss = waiting->refusal;
      end(*waiting, loss);
      Model* const told = parts_.models.find(lost);
      if (told == nullptr || parts_.log.loss(lost).text() != loss.text()) return;
      told->lost = false;
      parts_.log.loss_told(lost, loss);
    });
  }
  if (refusal.ok() && !parts_.flows.at(model->id).unsettled())
    refusal = check_version(*model, named_version(request.submit.args));
  if (!refusal.ok()) return request.handler(failure(refusal));
  submit_sampling(std::move(request), *model, *size);
}

Status OpService::check_capacity(const Model& model, const OpSize& size) const {
  const EngineRow* const engine = parts_.models.engine(model.engine);
  return dispatcher_->admissible(state_->device_bytes(model.id) + size.kv_bytes, engine->base_model)
      .within("op of model '" + model.name + "'");
}

Status OpService::check_version(const Model& model, std::uint64_t version) const {
  if (version == 0) return {};
  if (version != model.latest_version)
    return error(Code::NOT_FOUND, "model '%s' has no version %llu (any more); the latest is %llu",
                 model.name.c_str(), number(version), number(model.latest_version));
  if (parts_.flows.at(model.id).replacing())
    return error(
        Code::NOT_FOUND,
        "model '%s': version %llu is being replaced; sample the version that the publish gives",
        model.name.c_str(), number(version));
  return {};
}

Op& OpService::add_op(SubmitRequest request, const OpSize& size) {
  Op op;
  op.model = ModelId{request.submit.model};
  op.tenant = request.tenant;
  op.kind = static_cast<core::OpKind>(request.submit.args.type);
  op.seq = request.submit.seq;
  op.sampling_client = request.submit.sampling_client;
  op.number = request.submit.number;
  op.version = named_version(request.submit.args);
  op.args = std::move(request.submit.args);
  op.fd = std::move(request.fd);
  op.client = std::move(request.client);
  op.kv_bytes = size.kv_bytes;
  op.work_tokens = size.work_tokens;
  op.rows = size.rows;
  op.own = size;
  op.waiters.push_back({request.session, request.request_id, std::move(request.handler)});
  Op& added = parts_.ops.add(std::move(op));
  parts_.results.accepted(added);
  return added;
}

bool OpService::knows(ModelId model, std::uint64_t seq) {
  const auto flow = parts_.flows.find(model);
  if (flow == parts_.flows.end()) return false;
  return parts_.ops.find_seq(model, seq) != nullptr || seq <= flow->second.stream.finished() ||
         parts_.results.knows(model, seq);
}

void OpService::await(ModelId model, std::uint64_t seq, Waiter waiter) {
  if (Op* const op = parts_.ops.find_seq(model, seq))
    return parts_.ops.join(*op, std::move(waiter));
  parts_.results.repeat(model, seq, std::move(waiter));
}

void OpService::repeat_result(const SubmitRequest& request) {
  parts_.results.repeat(ModelId{request.submit.model}, request.submit.seq,
                        {request.session, request.request_id, request.handler});
}

void OpService::submit_training(SubmitRequest request, Model& model, Status refusal, OpSize size) {
  const std::uint64_t seq = request.submit.seq;
  if (Op* const same = parts_.ops.find_seq(model.id, seq)) {
    parts_.ops.join(*same, {request.session, request.request_id, std::move(request.handler)});
    return;
  }
  ModelFlow& flow = parts_.flows.at(model.id);
  const bool known = seq <= flow.stream.finished() || parts_.log.has_result(model.id, seq);
  if (!known) {
    Status room = parts_.ops.room_for(request.tenant);
    if (room.ok())
      room = parts_.log.room(model.id, static_cast<core::OpKind>(request.submit.args.type));
    // What comes before may empty the log by the time of its turn.
    if (!room.ok() && seq > flow.stream.next_seq())
      room = error(Code::BUSY, "training op %llu comes before its turn, and the log is full",
                   number(seq));
    if (room.scope() == Scope::kRetry) return request.handler(failure(room));
    if (!room.ok()) refusal = room.within("model '" + model.name + "'");
  }
  switch (flow.stream.offer(seq)) {
    case core::OpStream::Answer::kDone:
    case core::OpStream::Answer::kTooOld:
      return repeat_result(request);
    case core::OpStream::Answer::kAccepted: {
      Op& op = add_op(std::move(request), size);
      op.refusal = std::move(refusal);
      accept(op);
      while (const auto ready = flow.stream.next_ready())
        accept(*parts_.ops.find_seq(model.id, *ready));
      return pump(model.id);
    }
    case core::OpStream::Answer::kWaits: {
      Op& op = add_op(std::move(request), size);
      op.refusal = std::move(refusal);
      op.state = OpState::kGap;
      return;
    }
    case core::OpStream::Answer::kFull:
    case core::OpStream::Answer::kDuplicate:
    case core::OpStream::Answer::kInvalid:
      break;
  }
  request.handler(failure(error(Code::BUSY, "training op %llu: %zu earlier ones are not finished",
                                number(seq), flow.stream.open())));
}

void OpService::accept(Op& op) {
  op.state = OpState::kHeld;
  const ModelId model = op.model;
  const bool lost = parts_.models.find(model)->lost;
  if (lost) op.refusal = parts_.log.loss(model);
  if (!op.refusal.ok()) {
    end_training(op, failure(op.refusal), 0);
    if (lost) loss_told(model);
    return;
  }
  // It may run before the log has it on disk: its result is told after both.
  parts_.log.append(op);
  parts_.flows.at(op.model).push(op.id, gate_of(op));
}

void OpService::loss_told(ModelId id) {
  if (Model* const model = parts_.models.find(id)) model->lost = false;
  parts_.log.loss_told(id, parts_.log.loss(id));
}

void OpService::submit_sampling(SubmitRequest request, Model& model, const OpSize& size) {
  Op* const same =
      parts_.ops.find_sampling(model.id, request.submit.sampling_client, request.submit.number);
  if (same != nullptr) {
    parts_.ops.join(*same, {request.session, request.request_id, std::move(request.handler)});
    return;
  }
  if (const Status room = parts_.ops.room_for(request.tenant); !room.ok())
    return request.handler(failure(room));
  ModelFlow& flow = parts_.flows.at(model.id);
  Op& op = add_op(std::move(request), size);
  op.reader = op.version != 0;
  if (op.reader) flow.reader_arrived();
  if (!flow.recovering()) feed(op);
}

// ---- order ----

void OpService::feed(Op& op) {
  if (op.kind != core::OpKind::kGenerate) return dispatcher_->feed(op);
  if (op.fed()) return;  // with the end of another one meanwhile
  if (Op* const ready = parts_.ops.find(groups_.arrived(op))) dispatcher_->feed(*ready);
}

void OpService::feed_sampling(ModelId id, const std::vector<OpId>& again) {
  const Model* const model = parts_.models.find(id);
  const auto flow = parts_.flows.find(id);
  if (model == nullptr || model->removing || flow == parts_.flows.end() ||
      flow->second.recovering())
    return;
  for (const OpId each : again)
    if (Op* const op = parts_.ops.find(each)) feed(*op);
  if (Op* const ready = parts_.ops.find(groups_.next(id))) dispatcher_->feed(*ready);
}

void OpService::pump(ModelId model) {
  while (true) {
    const auto flow = parts_.flows.find(model);
    if (flow == parts_.flows.end()) return;
    const OpId next = flow->second.next_to_feed();
    if (!next) return;
    Op* const op = parts_.ops.find(next);
    PLEXRL_CHECK(op != nullptr, "a training op that may be fed exists");
    feed(*op);
  }
}

void OpService::op_started(Op& op) {
  parts_.results.first_started(op);
  for (const OpId id : op.riders)
    if (Op* const rider = parts_.ops.find(id)) parts_.results.first_started(*rider);
  if (op.training() && !op.replay && !op.started) parts_.flows.at(op.model).stream.start(op.seq);
}

// ---- ends ----

void OpService::op_ended(OpId id, Result<wire::EngineOpDoneT> result) {
  Op* const op = parts_.ops.find(id);
  PLEXRL_CHECK(op != nullptr, "an op ends once");
  if (op->replay) return replay_ended(*op, result);
  if (!result) return end(*op, result.error());
  parts_.accounting.op_ran(
      op->tenant, op->model,
      {op->training(), op->run_ns, static_cast<std::int64_t>(result->commit_stall_ns),
       static_cast<std::int64_t>(result->switch_stall_ns)});
  if (op->training()) applied(*op, *result);
  // A replay could not read the file again.
  if (op->kind == core::OpKind::kLoad && op->needs_client_fd()) {
    op->state = OpState::kCommitting;
    op->result = std::move(result->value);
    return want_commit(op->model);
  }
  if (!op->shared.empty()) return end_group(*op, *std::move(result));
  OpOutcome outcome;
  outcome.reply.value = std::move(result->value);
  const ModelId model = op->model;
  const bool commit =
      op->kind == core::OpKind::kOptimStep || op->kind == core::OpKind::kLoad || op->publish();
  // Before the next op starts, so that the copy is of the state right after this one.
  if (commit) want_commit(model);
  if (op->training()) return end_training(*op, std::move(outcome), result->tokens);
  end_sampling(*op, std::move(outcome), result->tokens);
}

void OpService::applied(Op& op, const wire::EngineOpDoneT& done) {
  Model* const model = parts_.models.find(op.model);
  state::Position& position = model->position;
  position.applied_seq = op.seq;
  if (!op.has_effect()) return;
  if (op.kind == core::OpKind::kForwardBackward) position.gradients_pending = true;
  if (const auto* step = done.value.AsOptimStepResult()) position.step = step->step;
  if (const auto* load = done.value.AsLoadResult()) position.step = load->step;
  if (op.kind == core::OpKind::kOptimStep || op.kind == core::OpKind::kLoad)
    position.gradients_pending = false;
  if (op.publish()) position.version = op.seq;
  state_->mark_dirty(op.model, position);
  if (op.publish()) model->latest_version = std::max(model->latest_version, op.seq);
}

void OpService::end_training(Op& op, OpOutcome outcome, std::uint64_t tokens) {
  const ModelId model = op.model;
  ModelFlow& flow = parts_.flows.at(model);
  flow.training_ended(op.id);
  if (op.state == OpState::kGap) {
    (void)flow.stream.cancel(op.seq);
  } else {
    flow.stream.finish(op.seq);
  }
  parts_.results.finish(op, std::move(outcome), tokens);
  pump(model);
}

void OpService::end_sampling(Op& op, OpOutcome outcome, std::uint64_t tokens) {
  const ModelId model = op.model;
  if (op.reader) parts_.flows.at(model).reader_left();
  const std::vector<OpId> again = groups_.left(op);
  // What one of a group ended with need not be the others' fault.
  const Code code = outcome.status.code();
  for (const OpId id : again)
    if (Op* const rider = parts_.ops.find(id))
      rider->alone = code != Code::OK && code != Code::CANCELLED;
  parts_.results.finish(op, std::move(outcome), tokens);
  pump(model);
  feed_sampling(model, again);
}

// Riders first: the leader's end lets the next group go. Who is told may cancel the others, so they
// are nobody's riders any more. The time that all took is shared by rows.
void OpService::end_group(Op& leader, wire::EngineOpDoneT done) {
  auto* const value = done.value.AsGenerateResult();
  auto parts = value == nullptr ? error(Code::INTERNAL, "the engine answered something else")
                                : split_result(leader, std::move(*value));
  if (!parts) return end(leader, parts.error());
  std::uint64_t rows = 0;
  for (const SharedResult& part : *parts) rows += part.rows;
  const std::int64_t ran = leader.run_ns;
  groups_.dissolve(leader);
  for (auto part = parts->rbegin(); part != parts->rend(); ++part) {
    Op* const op = parts_.ops.find(part->op);
    if (op == nullptr) continue;  // its client has given it up
    op->run_ns =
        static_cast<std::int64_t>(core::mul_div(static_cast<std::uint64_t>(ran), part->rows, rows));
    OpOutcome outcome;
    outcome.reply.value.Set(std::move(part->value));
    end_sampling(*op, std::move(outcome), part->tokens);
  }
}

void OpService::end(Op& op, const Status& why) {
  if (op.training()) return end_training(op, failure(why), 0);
  end_sampling(op, failure(why), 0);
}

void OpService::replay_ended(Op& op, const Result<wire::EngineOpDoneT>& result) {
  const ModelId model = op.model;
  const Status status =
      result ? Status{} : result.error().within("replay of training op " + std::to_string(op.seq));
  if (result) applied(op, *result);
  const bool last = parts_.flows.at(model).replay_ended(op.id);
  const bool commit =
      op.kind == core::OpKind::kOptimStep || op.kind == core::OpKind::kLoad || op.publish();
  parts_.results.replayed(op);
  if (commit && status.ok()) want_commit(model);
  if (last || !status.ok()) replayed_(model, status);
}

void OpService::drop_ops(ModelId model, const Status& why) {
  std::vector<OpId> ids;
  for (const Op* op : parts_.ops.of_model(model)) ids.push_back(op->id);
  for (const OpId id : ids) {
    Op* const op = parts_.ops.find(id);
    if (op == nullptr || op->replay) continue;
    if (op->state == OpState::kRunning || op->in_doubt) {
      dispatcher_->cancel(*op);
      continue;
    }
    if (op->training() && op->started) continue;
    if (op->fed()) dispatcher_->withdraw(*op);
    end(*op, why);
  }
}

void OpService::drop_replays(ModelId model) {
  for (Op* const op : parts_.ops.of_model(model)) {
    if (!op->replay || op->state == OpState::kRunning) continue;
    if (op->fed()) dispatcher_->withdraw(*op);
    (void)parts_.flows.at(model).replay_ended(op->id);
    parts_.results.replayed(*op);
  }
}

// ---- commits ----

void OpService::want_commit(ModelId model) {
  const Status status = dispatcher_->mover().commit(model);
  if (status.ok()) return;
  if (status.code() == Code::BUSY) {
    commit_wanted_.insert(model);
    return;
  }
  // Clean already, or without room for a second copy: then it is committed when it is parked.
  release_loads(model, UINT64_MAX);
}

void OpService::release_loads(ModelId model, std::uint64_t applied_seq) {
  for (Op* const op : parts_.ops.of_model(model)) {
    if (op->state != OpState::kCommitting || op->seq > applied_seq) continue;
    OpOutcome outcome;
    outcome.reply.value = std::move(op->result);
    // A load is a wall, so there is only one.
    return end_training(*op, std::move(outcome), 0);
  }
}

// How long the commit waited for ops costs nobody: only what ops waited for commits is counted.
void OpService::model_committed(ModelId model, const state::Position& position) {
  const Model* const row = parts_.models.find(model);
  if (row == nullptr) return;
  parts_.log.committed(model, position.applied_seq);
  ++parts_.accounting.totals(row->tenant).commits;
  release_loads(model, position.applied_seq);
}

void OpService::commit_ended(ModelId model, const Status& why) {
  // Asked for again since: the next one counts.
  if (commit_wanted_.erase(model) != 0 && parts_.models.find(model) != nullptr)
    return want_commit(model);
  if (why.ok()) return;
  PLEXRL_LOG(kWarning, "model %llu: commit: %s", number(model.value), why.to_string().c_str());
  release_loads(model, UINT64_MAX);
}

void OpService::model_unusable(ModelId model, const Status& why) {
  if (parts_.models.is_base(model)) {
    const EngineId engine = parts_.models.engine_of(model);
    for (const Model* row : parts_.models.of_engine(engine))
      drop_ops(row->id, why.within("load the base"));
    return;
  }
  drop_ops(model, why.within("make the model resident"));
}

void OpService::model_gone(ModelId model) {
  commit_wanted_.erase(model);
  groups_.forget(model);
  parts_.accounting.forget_model(model);
  // What ran or waited for a commit when its engine died.
  std::vector<OpId> left;
  for (const Op* op : parts_.ops.of_model(model)) left.push_back(op->id);
  for (const OpId id : left) {
    Op& op = *parts_.ops.find(id);
    if (op.replay) {
      parts_.results.replayed(op);
    } else {
      end(op, error(Code::CANCELLED, "the model was removed"));
    }
  }
  if (gone_) gone_(model);
}

// ---- clients that change their mind ----

void OpService::cancel(SessionId session, std::uint64_t request_id) {
  Op* const op = parts_.ops.find_request(session, request_id);
  if (op == nullptr || op->state == OpState::kCommitting) return;
  if (op->state == OpState::kGap)
    return end(*op, error(Code::CANCELLED, "cancelled before its turn"));
  const OpId leader = op->leader;
  if (op->training() || (op->waiters.size() == 1 && op->riders.empty())) {
    dispatcher_->cancel(*op);
    return drop_unwanted(leader);
  }
  const Waiter gone = parts_.ops.leave(*op, session, request_id);
  gone.handler(failure(error(Code::CANCELLED, "cancelled; the op goes on for others")));
}

// Those that came later first: riders before their leader.
void OpService::session_closed(SessionId session) {
  const std::set<OpId> all = parts_.ops.leave_all(session);
  for (auto id = all.rbegin(); id != all.rend(); ++id) {
    const Op* const op = parts_.ops.find(*id);
    // Cancelling one may have ended others.
    const OpId leader = op == nullptr ? OpId{} : op->leader;
    drop_unwanted(*id);
    drop_unwanted(leader);
  }
}

void OpService::drop_unwanted(OpId id) {
  Op* const op = parts_.ops.find(id);
  if (op != nullptr && op->waiters.empty() && op->riders.empty() && !op->training())
    dispatcher_->cancel(*op);
}

}  // namespace plexrl::runtime
