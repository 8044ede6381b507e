// SPDX-License-Identifier: Apache-2.0
#include "runtime/mover.h"

#include "base/check.h"
#include "base/log.h"

namespace plexrl::runtime {
namespace {

std::unique_ptr<wire::SegmentPlaceT> place_of(const state::SegmentMove& move) {
  auto place = std::make_unique<wire::SegmentPlaceT>();
  place->kind = static_cast<wire::SegmentKind>(move.kind);
  place->bytes = move.bytes;
  place->device = move.device;
  place->host = move.host;
  return place;
}

template <class Request>
void set_segments(Request& request, const state::MovePlan& plan) {
  for (const auto& move : plan.segments) request.segments.push_back(place_of(move));
}

Status unexpected(const char* what) {
  return error(Code::INTERNAL, "the engine answered %s with something else", what);
}

// Of what was to be resumed: see StateManager::prepare.
bool state_lost(const Status& why) {
  return why.code() == Code::CORRUPT || why.code() == Code::LOST;
}

unsigned long long number(ModelId model) { return model.value; }

}  // namespace

void Mover::call(ModelId model, wire::EngineBodyUnion body,
                 void (Mover::*done)(ModelId, const Result<engine::Reply>&)) {
  engines_.call(models_.engine_of(model), std::move(body), {},
                [this, model, done](const Result<engine::Reply>& reply) {
                  // The engine's death is handled for all of its models at once by engine_lost.
                  if (!reply && reply.error().code() == Code::ENGINE_DOWN) return;
                  (this->*done)(model, reply);
                });
}

void Mover::resume(ModelId model) {
  if (storing_.count(model) != 0) {
    resume_after_store_.insert(model);
    return;
  }
  moving_.insert(model);
  state_.prepare(model, state::Need::kResume,
                 [this, model](const Status& ready) { start_resume(model, ready); });
}

void Mover::start_resume(ModelId model, const Status& ready) {
  auto plan = ready.ok() ? state_.plan_resume(model) : Result<state::MovePlan>(ready);
  if (!plan && ready.ok() && plan.error().code() == Code::NO_CAPACITY && state_.kv_retiring()) {
    resume_after_drop_.insert(model);
    return;
  }
  if (!plan) {
    moving_.erase(model);
    listener_.resume_failed(model, plan.error());
    if (state_lost(plan.error())) listener_.damaged(model, plan.error());
    return;
  }
  wire::EngineResumeT request;
  request.model = models_.wire_id(model);
  request.mode = wire::TrainMode::None;
  if (Model* const row = models_.find(model)) {
    request.mode = row->mode;
    request.lora_rank = row->lora_rank;
    request.seed = row->seed;
  }
  request.step = plan->position.step;
  request.seq = plan->position.applied_seq;
  request.version = plan->position.version;
  request.gradients_pending = plan->position.gradients_pending;
  set_segments(request, *plan);
  if (const auto kv = kv_.find(model); kv != kv_.end()) {
    for (const auto& move : plan->segments)
      if (move.kind == state::SegmentKind::kKv) kv->second.device = move.device;
  }
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  call(model, std::move(body), &Mover::resume_done);
}

void Mover::resume_done(ModelId model, const Result<engine::Reply>& reply) {
  moving_.erase(model);
  if (reply && reply->body.AsEngineMoved() != nullptr) {
    state_.resume_done(model);
    state_.pin(model);
    models_.set_resident(model, true);
    wire::EngineAwaitFillT request;
    request.model = models_.wire_id(model);
    wire::EngineBodyUnion body;
    body.Set(request);
    call(model, std::move(body), &Mover::fill_done);
    return listener_.resumed(model);
  }
  state_.resume_failed(model);
  listener_.resume_failed(model, reply ? unexpected("a resume") : reply.error());
}

// An engine of an older version does not know the question, and has filled everything before.
void Mover::fill_done(ModelId model, const Result<engine::Reply>& /*reply*/) {
  state_.unpin(model);
  listener_.filled(model);
}

void Mover::park(ModelId model) {
  const auto commit = committing_.find(model);
  if (commit == committing_.end() || commit->second == Commit::kStoring) return start_park(model);
  park_after_commit_.insert(model);
}

void Mover::start_park(ModelId model) {
  moving_.insert(model);
  state_.prepare(model, state::Need::kSuspend,
                 [this, model](const Status& ready) { start_suspend(model, ready); });
}

void Mover::start_suspend(ModelId model, const Status& ready) {
  auto plan = ready.ok() ? state_.plan_suspend(model) : Result<state::MovePlan>(ready);
  if (!plan) {
    moving_.erase(model);
    // It changed since the copy whose manifest is on its way.
    if (plan.error().code() == Code::BUSY && committing(model)) {
      park_after_commit_.insert(model);
      return;
    }
    return listener_.park_failed(model, plan.error());
  }
  wire::EngineSuspendT request;
  request.model = models_.wire_id(model);
  set_segments(request, *plan);
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  call(model, std::move(body), &Mover::suspend_done);
}

void Mover::suspend_done(ModelId model, const Result<engine::Reply>& reply) {
  moving_.erase(model);
  const auto* moved = reply ? reply->body.AsEngineMoved() : nullptr;
  if (moved == nullptr) {
    state_.suspend_failed(model);
    return listener_.park_failed(model, reply ? unexpected("a suspend") : reply.error());
  }
  const state::Position position{moved->step, moved->version, moved->seq, moved->gradients_pending};
  storing_.insert(model);
  models_.set_resident(model, false);
  state_.suspend_done(model, position,
                      [this, model](const Status& stored) { park_stored(model, stored); });
  listener_.parked(model);
}

void Mover::park_stored(ModelId model, const Status& stored) {
  storing_.erase(model);
  const bool wanted = resume_after_store_.erase(model) != 0;
  const auto* manifest = models_.find(model) != nullptr ? state_.manifest(model) : nullptr;
  if (manifest == nullptr) return;  // a base, or removed meanwhile
  if (stored.ok()) {
    listener_.committed(model, manifest->position);
  } else {
    // The device memory is gone and the manifest is the old one: as after an engine's death.
    PLEXRL_LOG(kError, "model %llu: suspend: %s", number(model), stored.to_string().c_str());
    listener_.rolled_back(model);
  }
  if (wanted) resume(model);
}

void Mover::forget(ModelId model) {
  if (committing(model)) {
    forget_after_commit_.insert(model);
    return;
  }
  wire::EngineForgetT request;
  request.model = models_.wire_id(model);
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  engines_.call(models_.engine_of(model), std::move(body), {},
                [this, model](const Result<engine::Reply>& reply) {
                  const bool died = !reply && reply.error().code() == Code::ENGINE_DOWN;
                  if (!reply && !died)
                    PLEXRL_LOG(kError, "model %llu: forget: %s", number(model),
                               reply.error().to_string().c_str());
                  kv_.erase(model);
                  state_.remove_model(model);
                  listener_.forgotten(model);
                });
}

void Mover::forget_parked(ModelId model) {
  wire::EngineForgetT request;
  request.model = models_.wire_id(model);
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  engines_.call(models_.engine_of(model), std::move(body), {}, [](const Result<engine::Reply>&) {});
}

Status Mover::commit(ModelId model) {
  if (committing(model) || moving_.count(model) != 0)
    return error(Code::BUSY, "a move or commit is under way");
  PLEXRL_CHECK(models_.find(model) != nullptr, "bases are never committed");
  committing_[model] = Commit::kCopying;
  // Without a disk tier, and where there is room, the answer is known before the call ends.
  struct Answer {
    bool late = false;
    std::optional<Status> status;
  };
  const auto answer = std::make_shared<Answer>();
  state_.prepare(model, state::Need::kCommit, [this, model, answer](const Status& ready) {
    answer->status = ready.ok() ? start_commit(model) : ready;
    if (answer->status->ok() || !answer->late) return;
    commit_over(model);
    listener_.commit_ended(model, *answer->status);
  });
  answer->late = true;
  if (answer->status && !answer->status->ok()) committing_.erase(model);
  return answer->status.value_or(Status());
}

Status Mover::start_commit(ModelId model) {
  PLEXRL_ASSIGN(const auto plan, state_.plan_commit(model));
  wire::EngineCommitT request;
  request.model = models_.wire_id(model);
  request.epoch = plan.epoch;
  set_segments(request, plan);
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  call(model, std::move(body), &Mover::commit_done);
  return {};
}

void Mover::commit_done(ModelId model, const Result<engine::Reply>& reply) {
  const auto* done = reply ? reply->body.AsEngineCommitted() : nullptr;
  if (done == nullptr) {
    state_.commit_failed(model);
    commit_over(model);
    return listener_.commit_ended(model, reply ? unexpected("a commit") : reply.error());
  }
  const state::Position position{done->step, done->version, done->seq, done->gradients_pending};
  committing_[model] = Commit::kStoring;
  state_.commit_done(model, done->epoch, position, [this, model, position](const Status& stored) {
    committed(model, position, stored);
  });
  if (!committing(model) || forget_after_commit_.count(model) != 0) return;
  if (park_after_commit_.erase(model) != 0) start_park(model);
}

void Mover::committed(ModelId model, const state::Position& position, const Status& stored) {
  if (stored.ok()) listener_.committed(model, position);
  commit_over(model);
  listener_.commit_ended(model, stored);
}

void Mover::commit_over(ModelId model) {
  committing_.erase(model);
  if (forget_after_commit_.erase(model) != 0) {
    park_after_commit_.erase(model);
    return forget(model);
  }
  if (park_after_commit_.erase(model) != 0) park(model);
}

Status Mover::take_kv(ModelId model, std::uint64_t bytes) {
  if (bytes == 0 || kv_.count(model) != 0) return {};
  PLEXRL_ASSIGN(auto move, state_.allocate_kv(model, bytes));
  kv_.emplace(model, std::move(move));
  return {};
}

void Mover::free_kv(ModelId model) {
  if (kv_.erase(model) != 0) state_.free_kv(model);
}

std::uint64_t Mover::retire_kv(ModelId model) {
  return kv_.erase(model) != 0 ? state_.retire_kv(model) : 0;
}

void Mover::memory_came() {
  for (const ModelId model : std::exchange(resume_after_drop_, {})) resume(model);
}

std::unique_ptr<wire::SegmentPlaceT> Mover::kv_place(ModelId model) const {
  const auto found = kv_.find(model);
  return found == kv_.end() ? nullptr : place_of(found->second);
}

state::Position Mover::engine_lost(ModelId model) {
  moving_.erase(model);
  committing_.erase(model);
  park_after_commit_.erase(model);
  forget_after_commit_.erase(model);
  resume_after_store_.erase(model);
  resume_after_drop_.erase(model);
  kv_.erase(model);
  const state::Position position = state_.engine_lost(model);
  models_.set_resident(model, false);
  if (Model* const row = models_.find(model)) row->position = position;
  return position;
}

Status Mover::adopt(ModelId model, const wire::ModelHeldT& held) {
  std::vector<state::SegmentMove> moves;
  for (const auto& place : held.segments)
    moves.push_back(
        {static_cast<state::SegmentKind>(place->kind), place->bytes, place->device, {}});
  state::Position position{held.step, held.version, held.committed_seq, held.gradients_pending};
  PLEXRL_TRY(state_.adopt(model, moves, position));
  models_.set_resident(model, true);
  position.applied_seq = held.applied_seq;
  if (Model* const row = models_.find(model)) row->position = position;
  return {};
}

void Mover::discard(ModelId model, std::function<void()> done) {
  wire::EngineForgetT request;
  request.model = models_.wire_id(model);
  wire::EngineBodyUnion body;
  body.Set(std::move(request));
  engines_.call(models_.engine_of(model), std::move(body), {},
                [this, model, done = std::move(done)](const Result<engine::Reply>& reply) {
                  if (!reply && reply.error().code() == Code::ENGINE_DOWN) return;
                  if (!reply)
                    PLEXRL_LOG(kError, "model %llu: forget: %s", number(model),
                               reply.error().to_string().c_str());
                  if (models_.find(model) != nullptr) (void)engine_lost(model);
                  done();
                });
}

}  // namespace plexrl::runtime
