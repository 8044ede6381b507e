// SPDX-License-Identifier: Apache-2.0
// Words of the core: what the scheduler is told and what it answers. Plain values, integers only.
// The core includes base only: no clock, I/O, threads, randomness, floating point.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/strong_id.h"

namespace plexrl::core {

// Numbers equal wire::OpKind.
enum class OpKind : std::uint8_t {
  kNone,
  kGenerate,
  kLogprobs,
  kForwardBackward,
  kOptimStep,
  kSave,
  kLoad,
  kLease  // the device group itself, for a process that brings its own engine
};
constexpr std::size_t kOpKinds = 8;

// ---- events: what happened ----

// A model that can be resident. A base of a LoRA engine is a model without ops; adapters name it in
// `base` and need it resident too. `device_bytes` is what it occupies while resident.
struct ModelAdded {
  ModelId model;
  TenantId tenant;  // none for a base
  EngineId engine;
  ModelId base;  // none for a base and for a full-parameter model
  std::uint64_t device_bytes = 0;
  std::uint32_t share_percent = 100;  // of device-group time, from the grant
};
// Its queued ops are gone; a running one still finishes. Then ParkModel is asked for when the model
// is on the device (the caller forgets it instead of saving it); with ModelParked it is gone. A
// base goes after its adapters.
struct ModelRemoved {
  ModelId model;
};
// Ops of one model and class (training; logprobs; generate) run in the order of arrival. At most
// one generate of a model is started and unfinished, so a model has the KV of one op.
struct OpArrived {
  OpId op;
  ModelId model;
  OpKind kind = OpKind::kNone;
  std::uint64_t device_bytes = 0;  // beyond the model's: KV cache; held from start to finish
  std::uint64_t work_tokens = 0;   // size, for the cost model
  // A lease has no end of its own. It is asked to yield when it has run for `slice` (and its turn
  // is over) while others wait, and after `limit` in any case; 0: never for that reason. Each start
  // begins anew. A lease that has yielded goes behind the ops that have arrived meanwhile.
  Duration slice{};
  Duration limit{};
  // Of a generate: prompts times samples. It pays for its part of a batch by them.
  std::uint64_t rows = 1;
  bool alone = false;  // runs in no batch
};
// A queued or yielded op is gone; its KV is free before the actions of this step are carried out. A
// running generate or logprobs is asked to yield, and OpYielded or OpFinished ends it. A running
// training op goes on to its end.
struct OpCancelled {
  OpId op;
};
struct OpYielded {
  OpId op;
};  // stopped at a yield point, wants to go on
struct OpFinished {
  OpId op;
};  // well, badly or cancelled
// Answer to ResumeModel; unasked: a model that a re-attached engine still holds. Tell those before
// EngineUp, so that nothing is moved needlessly.
struct ModelResumed {
  ModelId model;
};
struct ModelParked {
  ModelId model;
};  // answer to ParkModel
// The model is parked (resume) or still resident (park). Tried again after a growing pause.
struct MoveFailed {
  ModelId model;
  bool was_resume = true;
};
struct EngineUp {
  EngineId engine;
};  // an engine is down until then
struct EngineDown {
  EngineId engine;
};               // its models are not resident; its running ops are queued again
struct Tick {};  // Actions::wakeup has come
// The largest slowdown against running alone that the tenant's job accepts, in thousandths; 0: no
// bound. Tell it again before the first model of a tenant whose models were all removed.
struct TenantBound {
  TenantId tenant;
  std::uint32_t slowdown_permille = 0;
};

// Journals hold the places in this list: new ones go to the end.
using Event =
    std::variant<ModelAdded, ModelRemoved, OpArrived, OpCancelled, OpYielded, OpFinished,
                 ModelResumed, ModelParked, MoveFailed, EngineUp, EngineDown, Tick, TenantBound>;

// ---- actions: what to do now, in this order ----

struct StartOp {
  OpId op;
};  // its model is resident; also goes on with a yielded op; may join generate ops that run
struct YieldOp {
  OpId op;
};  // ask a running op to stop at its next yield point
struct ResumeModel {
  ModelId model;
};  // copy in and map
struct ParkModel {
  ModelId model;
};  // copy out and unmap

using Action = std::variant<StartOp, YieldOp, ResumeModel, ParkModel>;

struct Actions {
  std::vector<Action> list;
  TimePoint wakeup{};  // send Tick then; 0 = not needed
};

// Why does an op wait? For people: `plexrl ops` and waiting clients.
struct WaitReason {
  enum class Kind : std::uint8_t {
    kNone,
    kRunning,
    kOtherTenant,
    kSwitch,
    kEngineDown,
    kOwnOps,
    kMemory
  };
  Kind kind = Kind::kNone;
  TenantId holder;  // kOtherTenant: whose op runs, or is next
  // What is waited for: an op that runs or is next (kOtherTenant, kOwnOps), else kNone.
  OpKind doing = OpKind::kNone;
  // When that, or the switch, is expected to end; 0: not known. It may be over.
  TimePoint until{};
};

// What the scheduler has learnt of a tenant. Alone: the time that its job would have needed by
// itself, which is wall time less the time in which all of its ops waited for others or a move.
struct TenantView {
  std::uint32_t busy_permille = 0;      // device time / alone; 0 before an op of it has ended
  std::uint32_t slowdown_permille = 0;  // wall / alone; 1000: not slowed down
  std::uint32_t bound_permille = 0;     // 0: none
  std::uint64_t violations = 0;         // how often the slowdown rose above the bound
  friend bool operator==(const TenantView&, const TenantView&) = default;
};

}  // namespace plexrl::core
