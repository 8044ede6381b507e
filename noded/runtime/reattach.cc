// SPDX-License-Identifier: Apache-2.0
#include "runtime/reattach.h"

#include <algorithm>

#include "base/log.h"
#include "wire/message.h"

namespace plexrl::runtime {
namespace {

template <class Request>
wire::EngineBodyUnion body_of(Request request) {
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  return body;
}

bool holds(const wire::EngineHelloT& hello, std::uint64_t model) {
  return std::any_of(hello.models.begin(), hello.models.end(),
                     [&](const auto& held) { return held->model == model; });
}

bool saves_to_store(const Op& op) {
  const auto* save = op.args.AsSaveArgs();
  return save != nullptr && save->target == wire::SaveTarget::Store;
}

}  // namespace

void Reattach::engine_ready(EngineId engine, const wire::EngineHelloT& hello, bool survivor) {
  ahead_.erase(engine);
  for (const Model* const model : parts_.models.of_engine(engine)) yielded_.erase(model->id);
  if (!survivor) {
    for (const auto& held : hello.models) forget(engine, held->model);
    if (hello.running_op != 0)
      return drop_op(engine, hello.running_op, [this, engine] { drop_sampling(engine); });
    return open(engine);
  }
  parts_.dispatcher.hold(engine);
  adopt(engine, hello);
  forget_parked(engine, hello);
  const bool taken = take_finished(hello);
  const OpId busy{hello.running_op != 0 ? hello.running_op : taken ? 0 : hello.finished_op};
  if (!busy) return drop_sampling(engine);
  if (parts_.ops.find(busy) != nullptr) return take_running(engine, busy);
  drop_op(engine, busy.value, [this, engine] { drop_sampling(engine); });
}

// Nobody waits for sampling ops that had yielded; after the last of the engine's own ops.
void Reattach::drop_sampling(EngineId engine) {
  drop_op(engine, 0, [this, engine] { open(engine); });
}

void Reattach::open(EngineId engine) {
  // Its ops have stopped: a running one would keep its model.
  if (!ahead_[engine].empty()) return discard_next(engine);
  ahead_.erase(engine);
  open_known(engine);
}

void Reattach::discard_next(EngineId engine) {
  const ModelId model = ahead_[engine].back();
  ahead_[engine].pop_back();
  if (parts_.models.find(model) == nullptr) return open(engine);  // removed meanwhile
  PLEXRL_LOG(
      kInfo,
      "model %llu: its engine ran ops whose results were not on disk yet; back to the last commit",
      static_cast<unsigned long long>(model.value));
  parts_.dispatcher.mover().discard(model, [this, engine] { open(engine); });
}

void Reattach::open_known(EngineId engine) {
  // Later deaths are recovered when they happen; only what was before this plexrld is left for
  // here.
  if (opened_.insert(engine).second) {
    for (const Model* const model : parts_.models.of_engine(engine)) recover(engine, model->id);
  }
  parts_.dispatcher.release(engine);
  up_(engine);
}

void Reattach::adopt(EngineId engine, const wire::EngineHelloT& hello) {
  const EngineRow* const row = parts_.models.engine(engine);
  for (const auto& held : hello.models) {
    const bool base = held->model == 0 && row->base_known;
    const ModelId id = base ? row->base_model : ModelId{held->model};
    const bool known = base || parts_.models.find(id) != nullptr;
    if (known && ahead_of_log(id, *held, hello) &&
        parts_.dispatcher.mover().adopt(id, *held).ok()) {
      parts_.models.set_resident(id, false);  // results of its ops count for nothing
      ahead_[engine].push_back(id);
      continue;
    }
    Status status =
        known ? parts_.dispatcher.adopted(id, *held) : error(Code::NOT_FOUND, "nobody's model");
    if (status.ok()) {
      note_yielded_training(id, held->started_seq);
      continue;
    }
    PLEXRL_LOG(kWarning, "engine %llu: model %llu: not taken over: %s",
               static_cast<unsigned long long>(engine.value),
               static_cast<unsigned long long>(held->model), status.to_string().c_str());
    forget(engine, held->model);
  }
}

// Nothing runs before the engine is up, so what was in doubt is settled here.
void Reattach::recover(EngineId engine, ModelId model) {
  std::vector<OpId> cancelled;
  for (Op* const op : parts_.ops.of_model(model)) {
    if (op->in_doubt && op->cancelled) cancelled.push_back(op->id);
    if (op->in_doubt) op->in_doubt = op->cancelled = false;
  }
  parts_.recovery.recover(model);
  if (const auto yielded = yielded_.extract(model); !yielded.empty()) {
    Op* const op = parts_.ops.find(yielded.mapped());
    if (op == nullptr) {
      drop_op(engine, yielded.mapped().value, [] {});
    } else {
      parts_.service.op_started(*op);
      op->started = true;
      if (op->has_effect()) parts_.dispatcher.mark_partial_gradients(model);
    }
  }
  for (const OpId id : cancelled)
    if (Op* const op = parts_.ops.find(id)) parts_.dispatcher.cancel(*op);
}

bool Reattach::ahead_of_log(ModelId model, const wire::ModelHeldT& held,
                            const wire::EngineHelloT& hello) const {
  const Model* const row = parts_.models.find(model);
  if (row == nullptr) return false;  // a base
  // The draft of a checkpoint went with the plexrld that had opened it: it is saved again.
  for (const std::uint64_t id : {hello.running_op, hello.finished_op}) {
    const Op* const op = parts_.ops.find(OpId{id});
    if (op != nullptr && op->model == model && saves_to_store(*op)) return true;
  }
  const std::uint64_t committed = row->position.applied_seq;
  const std::uint64_t known = std::max(parts_.log.last_known(model), committed);
  if (std::max(held.started_seq, held.applied_seq) > known) return true;
  if (began_replay(model, held)) return true;
  for (const std::uint64_t seq : parts_.log.logged(model)) {
    if (seq <= committed || seq > held.applied_seq || parts_.log.has_result(model, seq)) continue;
    const Op* const op = parts_.ops.find_seq(model, seq);
    if (op == nullptr || op->id.value != hello.finished_op) return true;
  }
  return false;
}

// Its number there was the old plexrld's: nobody can go on with it, and a part of its gradients may
// have been added.
bool Reattach::began_replay(ModelId model, const wire::ModelHeldT& held) const {
  if (held.started_seq <= held.applied_seq || !parts_.log.has_result(model, held.started_seq))
    return false;
  const auto outcome = parts_.log.result(model, held.started_seq);
  return !outcome || outcome->status.ok();
}

// The op in front may have yielded with a part of its gradients added; those behind it cannot have
// begun on this state.
void Reattach::note_yielded_training(ModelId model, std::uint64_t started_seq) {
  const Op* front = nullptr;
  for (const Op* const op : parts_.ops.of_model(model))
    if (op->training() && (front == nullptr || op->seq < front->seq)) front = op;
  if (front == nullptr || front->kind != core::OpKind::kForwardBackward || front->seq > started_seq)
    return;
  yielded_[model] = front->id;
}

bool Reattach::resident(const Op& op) const {
  const Model* const model = parts_.models.find(op.model);
  return model != nullptr && model->resident;
}

void Reattach::forget(EngineId engine, std::uint64_t wire_model) {
  wire::EngineForgetT request;
  request.model = wire_model;
  parts_.engines.call(engine, body_of(std::move(request)), {}, [](const Result<engine::Reply>&) {});
}

void Reattach::drop_op(EngineId engine, std::uint64_t op, std::function<void()> then) {
  wire::EngineDropOpT request;
  request.op = op;
  parts_.engines.call(engine, body_of(std::move(request)), {},
                      [done = std::move(then)](const Result<engine::Reply>& reply) {
                        const bool died = !reply && reply.error().code() == Code::ENGINE_DOWN;
                        if (!died) done();
                      });
}

// A yielded op of a model that was parked has lost the gradients that it had added: they were
// parked in chunks that no manifest names. It starts again from the front, on the manifest's state.
void Reattach::forget_parked(EngineId engine, const wire::EngineHelloT& hello) {
  for (const Model* const model : parts_.models.of_engine(engine))
    if (!holds(hello, model->id.value)) forget(engine, model->id.value);
}

// True when the hello brought the result and it was taken.
bool Reattach::take_finished(const wire::EngineHelloT& hello) {
  Op* const op = parts_.ops.find(OpId{hello.finished_op});
  // Without its model the result counts for nothing: the op runs again.
  if (op == nullptr || !resident(*op)) return false;
  if (hello.finished == nullptr && hello.finished_failure == nullptr) return false;
  parts_.service.op_started(*op);
  op->started = true;
  if (hello.finished != nullptr) {
    parts_.service.op_ended(op->id, *hello.finished);
  } else {
    parts_.service.op_ended(op->id, wire::from_failure(*hello.finished_failure));
  }
  return true;
}

void Reattach::take_running(EngineId engine, OpId id) {
  Op* const op = parts_.ops.find(id);
  // It may have changed the state already, so a cancel comes too late.
  if (op->training() && resident(*op)) {
    parts_.service.op_started(*op);
    op->started = true;
  }
  wire::EngineRunOpT run;
  run.op = id.value;
  run.model = op->model.value;
  run.seq = op->seq;
  run.version_out = op->publish() ? op->seq : 0;
  run.args = op->args;
  parts_.engines.call(
      engine, body_of(std::move(run)), {},
      [this, engine, id](const Result<engine::Reply>& reply) { running_ended(engine, id, reply); });
  wire::EngineYieldT yield;
  yield.op = id.value;
  parts_.engines.call(engine, body_of(std::move(yield)), {}, [](const Result<engine::Reply>&) {});
}

void Reattach::running_ended(EngineId engine, OpId id, const Result<engine::Reply>& reply) {
  if (!reply && reply.error().code() == Code::ENGINE_DOWN) return;
  Op* const op = parts_.ops.find(id);
  // An engine gives the last result to whoever asks for that op again: one that counts for nothing
  // would be taken for that of the next run.
  if (op == nullptr || !resident(*op))
    return drop_op(engine, id.value, [this, engine] { drop_sampling(engine); });
  if (!reply || reply->body.AsEngineYielded() == nullptr) {
    parts_.service.op_started(*op);
    op->started = true;
    const auto* done = reply ? reply->body.AsEngineOpDone() : nullptr;
    if (done != nullptr) {
      parts_.service.op_ended(id, *done);
    } else {
      parts_.service.op_ended(id,
                              reply ? error(Code::INTERNAL, "unexpected answer") : reply.error());
    }
  }
  drop_sampling(engine);
}

}  // namespace plexrl::runtime
