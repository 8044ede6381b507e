// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/held_op.h"

#include <utility>

#include "base/log.h"
#include "engine_torch/memory_command.h"

namespace plexrl::worker {
namespace {

// The memory may hold another tenant's KV: it is zeroed before the op sees it.
Status map_kv(ModelTable& table, HeldModel& model, const HeldOp& op) {
  if (!op.request.kv || op.request.kv->device.empty()) return {};
  HeldSegment kv;
  PLEXRL_ASSIGN(kv.place, table.device().reserve(op.request.kv->bytes));
  PLEXRL_TRY(map_segment(table, kv, op.request.kv->device));
  PLEXRL_TRY(table.device().zero(kv.place->data(), kv.place->bytes()));
  PLEXRL_TRY(zero_tail(table, kv));
  model.kv = std::move(kv);
  model.kv_op = op.request.op;
  return {};
}

OpOutcome failed(Status error) {
  OpOutcome outcome;
  outcome.error = std::move(error);
  return outcome;
}

OpOutcome stopped(OpOutcome::Kind kind) {
  OpOutcome outcome;
  outcome.kind = kind;
  return outcome;
}

OpOutcome finished(model::OpRun& run) {
  OpOutcome outcome = stopped(OpOutcome::Kind::kFinished);
  outcome.value = run.take_result();
  outcome.tokens = run.tokens_done();
  return outcome;
}

OpOutcome step_until_stopped(model::OpRun& run, const StopSignal& stop,
                             std::atomic<std::uint64_t>& progress) {
  for (;;) {
    auto done = run.step();
    ++progress;
    if (!done) return failed(done.error());
    if (*done) return finished(run);
    if (stop.drop) {
      run.abandon();
      return stopped(OpOutcome::Kind::kDropped);
    }
    if (stop.yield) return stopped(OpOutcome::Kind::kYielded);
  }
}

}  // namespace

Status begin_op(ModelTable& table, HeldModel& model, HeldOp& op) {
  PLEXRL_TRY(map_kv(table, model, op).within("KV"));
  model::OpEnv env;
  env.state = &model.state;
  if (model.kv && model.kv_op == op.request.op) env.kv = model.kv->bytes();
  env.version_out = op.request.version_out;
  env.fd = op.fd.get();
  PLEXRL_ASSIGN(op.run, table.code().make_run(env, op.request.args));
  return {};
}

// Destroying the reservation unmaps it.
void end_op(HeldModel& model, HeldOp& op) {
  op.run.reset();
  if (model.kv_op != op.request.op) return;
  model.kv.reset();
  model.kv_op = 0;
}

OpOutcome run_op(ModelTable& table, HeldModel& model, HeldOp& op,
                 std::atomic<std::uint64_t>& progress) {
  const TimePoint start = system_clock().now();
  OpOutcome outcome;
  if (Status status = op.run ? Status() : begin_op(table, model, op); status.ok())
    outcome = step_until_stopped(*op.run, op.stop, progress);
  else
    outcome = failed(std::move(status));
  if (outcome.kind != OpOutcome::Kind::kYielded) end_op(model, op);
  outcome.run_ns = static_cast<std::uint64_t>((system_clock().now() - start).ns);
  return outcome;
}

void note_position(HeldModel& model, const HeldOp& op) {
  using wire::SegmentKind;
  if (op.writes_committed && op.request.args.AsSaveArgs() != nullptr)
    model.written.insert(SegmentKind::SamplerWeights);
  else if (op.writes_committed)
    model.written.insert({SegmentKind::Weights, SegmentKind::AdamM, SegmentKind::AdamV});
  TrainPosition& position = model.position;
  position.step = model.state.step;
  position.version = model.state.sampler_version;
  position.gradients_pending = model.state.gradients_pending;
  if (op.request.seq == 0) return;
  position.applied_seq = op.request.seq;
  if (!position.gradients_pending) position.committed_seq = op.request.seq;
}

}  // namespace plexrl::worker
