// SPDX-License-Identifier: Apache-2.0
// Mover: carries the StateManager's plans out on the engines: resume, suspend, forget, commit. One
// move or commit of a model is under way at a time; a suspend that comes during a commit waits for
// its copy, and for its manifest only when something changed since. A move may first wait for host
// memory: for segments that come from the disk tier or go to it. A model is parked as soon as it is
// off the device; a resume waits until its manifest is on disk. Loop thread only; listener calls
// come from the loop, except that a plan which cannot be made is reported from inside the call.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "runtime/engine_supervisor.h"
#include "runtime/model_table.h"
#include "state/state_manager.h"

namespace plexrl::runtime {

class MoveListener {
 public:
  virtual ~MoveListener() = default;
  // Its ops may begin. The engine may still be filling what they do not need first.
  virtual void resumed(ModelId model) = 0;
  // Follows on resumed(): all of it is there. Also when it is moving again or gone meanwhile; not
  // when its engine died.
  virtual void filled(ModelId model) = 0;
  virtual void resume_failed(ModelId model, const Status& why) = 0;
  virtual void parked(ModelId model) = 0;
  virtual void park_failed(ModelId model, const Status& why) = 0;
  // It is parked at an older manifest, because the new one could not be stored.
  virtual void rolled_back(ModelId model) = 0;
  // After resume_failed: what was parked of it is damaged. It is at its manifest, which is that of
  // a new model when `why` is CORRUPT.
  virtual void damaged(ModelId model, const Status& why) = 0;
  // The engine and the state manager hold nothing of it any more.
  virtual void forgotten(ModelId model) = 0;
  // The manifest holds everything up to position.applied_seq. Also after a suspend that flipped it.
  virtual void committed(ModelId model, const state::Position& position) = 0;
  // No commit is under way any more and none was made.
  virtual void commit_ended(ModelId model, const Status& why) = 0;
};

class Mover {
 public:
  Mover(EngineSupervisor& engines, ModelTable& models, state::StateManager& state,
        MoveListener& listener)
      : engines_(engines), models_(models), state_(state), listener_(listener) {}

  void resume(ModelId model);
  void park(ModelId model);
  void forget(ModelId model);
  // The engine drops what it knows of a model that is not on the device; nothing is reported.
  void forget_parked(ModelId model);
  // Commits what is dirty; does nothing while a move or another commit of the model is under way.
  // NOT_FOUND: clean. NO_CAPACITY: no room for a second copy, the model is committed when parked.
  [[nodiscard]] Status commit(ModelId model);
  [[nodiscard]] bool committing(ModelId model) const { return committing_.count(model) != 0; }

  // Also when the move waits for the end of a commit.
  [[nodiscard]] bool moving(ModelId model) const {
    return moving_.count(model) != 0 || park_after_commit_.count(model) != 0 ||
           forget_after_commit_.count(model) != 0 || resume_after_store_.count(model) != 0;
  }

  // KV of the model's started generate. kv_place: what the engine maps now.
  [[nodiscard]] Status take_kv(ModelId model, std::uint64_t bytes);
  void free_kv(ModelId model);  // the engine has ended the op
  // The engine is asked to drop the op; kv_dropped: it has answered. See StateManager::retire_kv.
  [[nodiscard]] std::uint64_t retire_kv(ModelId model);
  void kv_dropped(ModelId model, std::uint64_t number) { state_.kv_dropped(model, number); }
  // Device memory was given back: resumes that wait for it are tried again.
  void memory_came();
  [[nodiscard]] std::unique_ptr<wire::SegmentPlaceT> kv_place(ModelId model) const;

  // The engine of these models died: nothing is under way any more. Returns the manifest's
  // position.
  [[nodiscard]] state::Position engine_lost(ModelId model);
  [[nodiscard]] Status adopt(ModelId model, const wire::ModelHeldT& held);
  // Its state on the device must not be used: the engine forgets it and it is parked at its
  // manifest, then `done`. Not called when the engine dies, which ends the same.
  void discard(ModelId model, std::function<void()> done);

 private:
  void start_park(ModelId model);
  void start_resume(ModelId model, const Status& ready);
  void start_suspend(ModelId model, const Status& ready);
  [[nodiscard]] Status start_commit(ModelId model);
  void suspend_done(ModelId model, const Result<engine::Reply>& reply);
  void resume_done(ModelId model, const Result<engine::Reply>& reply);
  void fill_done(ModelId model, const Result<engine::Reply>& reply);
  void commit_done(ModelId model, const Result<engine::Reply>& reply);
  void committed(ModelId model, const state::Position& position, const Status& stored);
  void park_stored(ModelId model, const Status& stored);
  void commit_over(ModelId model);
  void call(ModelId model, wire::EngineBodyUnion body,
            void (Mover::*done)(ModelId, const Result<engine::Reply>&));

  EngineSupervisor& engines_;
  ModelTable& models_;
  state::StateManager& state_;
  MoveListener& listener_;
  std::set<ModelId> moving_;
  enum class Commit : std::uint8_t { kCopying, kStoring };
  std::map<ModelId, Commit> committing_;
  std::set<ModelId> park_after_commit_;
  std::set<ModelId> forget_after_commit_;
  std::set<ModelId> storing_;  // parked, and the manifest is on its way to the disk
  std::set<ModelId> resume_after_store_;
  std::set<ModelId> resume_after_drop_;  // moving_; its memory is KV that an engine still has
  std::map<ModelId, state::SegmentMove> kv_;
};

}  // namespace plexrl::runtime
