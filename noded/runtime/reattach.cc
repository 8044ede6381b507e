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

}  // namespace

void Reattach::engine_ready(EngineId engine, const wire::EngineHelloT& hello, bool survivor) {
  if (!survivor) {
    for (const auto& held : hello.models) forget(engine, held->model);
    if (hello.running_op != 0)
      return drop_op(engine, hello.running_op, [this, engine] { open(engine); });
    return open(engine);
  }
  adopt(engine, hello);
  drop_unfinished(engine, hello);
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
  // Later deaths are recovered when they happen; only what was before this plexrld is left for
  // here.
  if (opened_.insert(engine).second) {
    for (const Model* const model : parts_.models.of_engine(engine))
      parts_.recovery.recover(model->id);
  }
  up_(engine);
}

void Reattach::adopt(EngineId engine, const wire::EngineHelloT& hello) {
  const EngineRow* const row = parts_.models.engine(engine);
  for (const auto& held : hello.models) {
    const bool base = held->model == 0 && row->base_known;
    const ModelId id = base ? row->base_model : ModelId{held->model};
    const bool known = base || parts_.models.find(id) != nullptr;
    Status status =
        known ? parts_.dispatcher.adopted(id, *held) : error(Code::NOT_FOUND, "nobody's model");
    if (status.ok()) {
      mark_yielded_training(id);
      continue;
    }
    PLEXRL_LOG(kWarning, "engine %llu: model %llu: not taken over: %s",
               static_cast<unsigned long long>(engine.value),
               static_cast<unsigned long long>(held->model), status.to_string().c_str());
    forget(engine, held->model);
  }
}

// It may have yielded with a part of its gradients added.
void Reattach::mark_yielded_training(ModelId model) {
  for (const Op* const op : parts_.ops.of_model(model))
    if (op->kind == core::OpKind::kForwardBackward) parts_.dispatcher.mark_partial_gradients(model);
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
// parked in chunks that no manifest names. It starts again from the front.
void Reattach::drop_unfinished(EngineId engine, const wire::EngineHelloT& hello) {
  for (const Model* const model : parts_.models.of_engine(engine)) {
    if (holds(hello, model->id.value)) continue;
    for (const Op* const op : parts_.ops.of_model(model->id))
      if (op->training()) drop_op(engine, op->id.value, [] {});
  }
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
  if (op != nullptr && resident(*op) && (!reply || reply->body.AsEngineYielded() == nullptr)) {
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
