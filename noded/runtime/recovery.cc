// SPDX-License-Identifier: Apache-2.0
#include "runtime/recovery.h"

#include <algorithm>

#include "base/log.h"

namespace plexrl::runtime {
namespace {

ModelFlow::Gate gate_of(const Op& op) {
  if (op.publish()) return ModelFlow::Gate::kPublish;
  return op.kind == core::OpKind::kLoad ? ModelFlow::Gate::kLoad : ModelFlow::Gate::kNone;
}

Status gone_with_memory() {
  return error(Code::LOST, "it was in memory that ended with plexrld and its engines");
}

unsigned long long number(std::uint64_t value) { return value; }

}  // namespace

// ---- start of plexrld ----

// A client has at most so many numbers open that all that is missing is among the newest of them.
std::uint64_t Recovery::finished_in_log(ModelId model) const {
  const std::uint64_t last = parts_.log.last_result(model);
  std::uint64_t seq = last > OpLog::kKeptResults ? last - OpLog::kKeptResults : 0;
  while (parts_.log.has_result(model, seq + 1)) ++seq;
  return std::min(seq, last);
}

Status Recovery::restore(Model& model) {
  if (const state::Manifest* manifest = parts_.state.manifest(model.id))
    model.position = manifest->position;
  model.latest_version = std::max(model.position.version, parts_.log.last_published(model.id));
  const std::uint64_t finished = finished_in_log(model.id);
  auto& flow =
      parts_.flows.emplace(model.id, ModelFlow(core::OpStream({}, finished))).first->second;
  flow.wait_for_engine();
  // What was written behind a loss told it.
  bool told = parts_.log.last_result(model.id) > parts_.log.gone_up_to(model.id);
  for (std::uint64_t seq = finished + 1;; ++seq) {
    if (!parts_.log.has_result(model.id, seq) && end_before_restart(model, seq)) told = true;
    const bool done = parts_.log.has_result(model.id, seq);
    if (!done && !parts_.log.has_op(model.id, seq)) break;
    if (!done) {
      PLEXRL_ASSIGN(Op op, parts_.log.read(model.id, seq));
      // The client has had no answer: it sends the op again, with the fd.
      if (op.needs_client_fd()) break;
      op.tenant = model.tenant;
      op.client = "(before the restart)";
      op.in_doubt = true;
      parts_.results.accepted(parts_.ops.add(std::move(op)));
    }
    if (flow.stream.offer(seq) != core::OpStream::Answer::kAccepted) break;
    if (done) flow.stream.finish(seq);
  }
  if (told) parts_.log.loss_told(model.id, parts_.log.loss(model.id));
  model.lost = !parts_.log.loss(model.id).ok();
  return {};
}

// What the plexrld before knew of the end of an op, and could not keep. True when it has an end.
bool Recovery::end_before_restart(const Model& model, std::uint64_t seq) {
  OpOutcome outcome;
  const bool known = seq <= parts_.log.gone_up_to(model.id) || parts_.log.has_op(model.id, seq);
  if (seq <= model.position.applied_seq) {
    outcome.status = error(Code::LOST,
                           "training op %llu was executed, but its result could not be kept; the "
                           "model goes on behind it",
                           number(seq));
    parts_.log.only_in_manifest(model.id, seq);
  } else if (known) {
    outcome.status = parts_.log.loss(model.id);
  }
  if (outcome.status.ok()) return false;
  parts_.log.put_result(model.id, seq, outcome, {});
  return true;
}

// ---- replay ----

Result<bool> Recovery::needs_replay(const Model& model, std::uint64_t seq, Op* op) const {
  if (!parts_.log.has_result(model.id, seq)) return false;
  PLEXRL_ASSIGN(const OpOutcome outcome, parts_.log.result(model.id, seq));
  if (!outcome.status.ok()) return false;
  auto logged = parts_.log.read(model.id, seq);
  // The log is cut behind a commit only, so there was one, and its memory is gone.
  if (!logged) return gone_with_memory();
  if (!logged->has_effect()) return false;
  if (logged->needs_client_fd())
    return error(Code::LOST, "training op %llu loaded a client's file, which cannot be read again",
                 number(seq));
  *op = *std::move(logged);
  return true;
}

Result<std::vector<Op>> Recovery::plan_replay(const Model& model) const {
  std::vector<Op> replays;
  const std::uint64_t last = parts_.log.last_result(model.id);
  const std::uint64_t level = std::max(model.position.applied_seq, parts_.log.gone_up_to(model.id));
  if (parts_.log.only_in_manifest(model.id) > model.position.applied_seq) return gone_with_memory();
  for (std::uint64_t seq = level + 1; seq <= last; ++seq) {
    Op op;
    PLEXRL_ASSIGN(const bool needed, needs_replay(model, seq, &op));
    if (!needed) continue;
    op.id = OpId{};  // a number of its own: the engine may know the first one
    op.tenant = model.tenant;
    op.replay = true;
    op.client = "(replay)";
    replays.push_back(std::move(op));
  }
  return replays;
}

// Nothing of the model runs when this is called: its engine is not up, or it is parked.
void Recovery::withdraw_fed(ModelId model) {
  std::vector<OpId> fed;
  for (const Op* const op : parts_.ops.of_model(model))
    if (op->fed()) fed.push_back(op->id);
  for (const OpId id : fed)
    if (Op* const op = parts_.ops.find(id)) parts_.dispatcher.withdraw(*op);
}

// What waits, in order; ops that were fed or ran are in the same place as those that never were.
void Recovery::gather(ModelId model) {
  ModelFlow& flow = parts_.flows.at(model);
  flow.begin_recovery();
  withdraw_fed(model);
  parts_.service.ungroup(model);
  std::vector<Op*> training;
  for (Op* const op : parts_.ops.of_model(model)) {
    if (op->replay) {
      parts_.results.replayed(*op);
    } else if (op->training() && op->state != OpState::kGap) {
      if (op->started) flow.stream.requeue(op->seq);
      op->started = false;
      op->state = OpState::kHeld;
      training.push_back(op);
    }
  }
  std::sort(training.begin(), training.end(),
            [](const Op* a, const Op* b) { return a->seq < b->seq; });
  for (const Op* const op : training) flow.push(op->id, gate_of(*op));
}

void Recovery::recover(ModelId id, const Status& damage) {
  Model& model = *parts_.models.find(id);
  gather(id);
  auto replays = plan_replay(model);
  if (!replays) return lose(model, damage.ok() ? replays.error() : damage);
  for (const Op& op : *replays) {
    const auto deaths = replay_deaths_.find({id, op.seq});
    if (deaths != replay_deaths_.end() && deaths->second >= kMaxDeaths)
      return lose(model, error(Code::LOST, "the engine died %u times replaying op %llu", kMaxDeaths,
                               number(op.seq)));
  }
  start_replay(model, *std::move(replays));
  give_up(id);
  if (!parts_.flows.at(id).recovering()) feed_waiting(id);
}

void Recovery::start_replay(const Model& model, std::vector<Op> replays) {
  if (replays.empty()) return;
  PLEXRL_LOG(kInfo, "model %llu: replaying %zu training ops after %llu", number(model.id.value),
             replays.size(), number(model.position.applied_seq));
  std::vector<OpId> ids;
  for (Op& replay : replays) {
    Op& op = parts_.ops.add(std::move(replay));
    parts_.results.accepted(op);
    parts_.flows.at(model.id).expect_replay(op.id);
    ids.push_back(op.id);
  }
  for (const OpId id : ids)
    if (Op* const op = parts_.ops.find(id)) parts_.service.feed(*op);
}

void Recovery::give_up(ModelId model) {
  for (Op* const op : parts_.ops.of_model(model)) {
    if (op->replay || op->deaths < kMaxDeaths) continue;
    return parts_.service.end(
        *op, error(Code::INTERNAL, "the engine died %u times while it ran this op", op->deaths));
  }
}

void Recovery::feed_waiting(ModelId model) {
  parts_.service.pump(model);
  std::vector<OpId> sampling;
  for (const Op* const op : parts_.ops.of_model(model))
    if (!op->training() && op->state == OpState::kHeld) sampling.push_back(op->id);
  for (const OpId id : sampling) {
    Op* const op = parts_.ops.find(id);
    if (op == nullptr) continue;
    if (op->cancelled) {
      parts_.service.end(*op, error(Code::CANCELLED, "cancelled while it ran"));
    } else {
      parts_.service.feed(*op);
    }
  }
}

void Recovery::replayed(ModelId id, const Status& status) {
  Model& model = *parts_.models.find(id);
  if (!status.ok()) return lose(model, status);
  replay_deaths_.erase(replay_deaths_.lower_bound({id, 0}),
                       replay_deaths_.upper_bound({id, UINT64_MAX}));
  PLEXRL_LOG(kInfo, "model %llu: level again at training op %llu", number(id.value),
             number(model.position.applied_seq));
  feed_waiting(id);
}

// What the client is told: what is gone, why, and where it can go on.
Status Recovery::loss_of(const Model& model, const Status& why) const {
  const state::Manifest* const manifest = parts_.state.manifest(model.id);
  const Code code = why.code() == Code::CORRUPT ? Code::CORRUPT : Code::LOST;
  if (manifest == nullptr || manifest->position.applied_seq == 0)
    return error(code,
                 "the state of model '%s' is gone: %s; it starts from its base again: load a "
                 "checkpoint",
                 model.name.c_str(), why.text().c_str());
  return error(code,
               "the state of model '%s' after step %llu is gone: %s; it goes on from there: load a "
               "checkpoint or repeat those steps",
               model.name.c_str(), number(manifest->position.step), why.text().c_str());
}

// The manifest's state stays; what came after it is gone and the client has to know.
void Recovery::lose(Model& model, const Status& why) {
  const Status loss = loss_of(model, why);
  PLEXRL_LOG(kError, "model %llu of tenant %llu: %s", number(model.id.value),
             number(model.tenant.value), loss.text().c_str());
  const state::Manifest* const manifest = parts_.state.manifest(model.id);
  model.latest_version = manifest != nullptr ? manifest->position.version : 0;
  // A restart must not find a state that the client has been told is gone.
  store::Batch with;
  parts_.state.settle_manifest(model.id, with);
  parts_.log.lost(model.id, loss, std::move(with));
  // No recovery looks at the results up to here any more: were the manifest gone as well, nothing
  // else would show it.
  if (manifest != nullptr && manifest->position.applied_seq > 0)
    parts_.log.only_in_manifest(model.id, manifest->position.applied_seq);
  // Clients that wait are told by their ops; otherwise the next call is.
  const auto ops = parts_.ops.of_model(model.id);
  const bool told = std::any_of(ops.begin(), ops.end(), [](const Op* op) {
    return !op->replay && (op->state != OpState::kGap || !op->waiters.empty());
  });
  model.lost = !told;
  const ModelId id = model.id;
  parts_.service.drop_replays(id);
  parts_.service.drop_ops(id, loss);
  // Sampling ops hear of it when it is on disk.
  if (told) parts_.log.when_kept(id, [this, id, loss] { parts_.log.loss_told(id, loss); });
  feed_waiting(id);
}

// ---- an engine's death ----

void Recovery::note_deaths(EngineId engine) {
  for (const Model* const model : parts_.models.of_engine(engine)) {
    for (Op* const op : parts_.ops.of_model(model->id)) {
      const Op* const ran = op->leader ? parts_.ops.find(op->leader) : op;
      if (ran == nullptr || ran->state != OpState::kRunning) continue;
      if (op->replay) {
        ++replay_deaths_[{model->id, op->seq}];
      } else {
        ++op->deaths;
      }
    }
  }
}

void Recovery::engine_lost(EngineId engine) {
  note_deaths(engine);
  parts_.dispatcher.engine_lost(engine);
  std::vector<ModelId> models;
  for (const Model* const model : parts_.models.of_engine(engine)) models.push_back(model->id);
  for (const ModelId id : models)
    if (parts_.models.find(id) != nullptr) recover(id);
}

}  // namespace plexrl::runtime
