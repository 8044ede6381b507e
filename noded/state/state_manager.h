// SPDX-License-Identifier: Apache-2.0
// StateManager: the one table of what is where. Owns the allocation of the device pool's and the
// host pool's chunks and the manifests; plans moves, which the engine carries out, and flips
// manifests when it reports success. A manifest is true once the AsyncStore has it on disk, which
// is not waited for. Loop thread only; no copying. Blocks on the disk at the start, and when a
// dirty model is parked over its only copy.
//
// Life of a move: plan_x() allocates and marks; exactly one of x_done() / x_failed() follows, or
// engine_lost() or remove_model(). Freed chunks may be handed out again only after that call, those
// that a manifest names or named only after what replaces it is on disk.
// doc/state.md says which segments a plan holds and why a crash finds the old state or the new one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "state/disk_tier.h"
#include "state/segment.h"

namespace plexrl::store {
class AsyncStore;
class Batch;
}  // namespace plexrl::store

namespace plexrl::state {

struct PoolSizes {
  std::uint64_t chunk_bytes = 0;
  std::uint32_t device_chunks = 0;
  std::uint32_t host_chunks = 0;
};

struct MovePlan {
  ModelId model;
  std::uint64_t epoch = 0;  // suspend, commit: the epoch that the manifest gets
  std::vector<SegmentMove> segments;
  Position position;  // resume: what the copied state has
};

// What a plan needs of host memory.
enum class Need : std::uint8_t {
  kResume,   // what is copied in is in host memory
  kSuspend,  // room for what is copied out
  kCommit    // the same
};

class StateManager {
 public:
  using Ready = std::function<void(const Status&)>;
  // Models with ops that wait, who will be resident first in front.
  using Expected = std::function<std::vector<ModelId>()>;
  // Called once: from inside the call when nothing had to be written, else from the loop.
  using Flipped = std::function<void(const Status&)>;

  virtual ~StateManager() = default;

  // Reserves host memory for `host_bytes` of the tenant's grant, in whole chunks; NO_CAPACITY when
  // the pool (and disk tier) cannot hold it beside all earlier grants, EXISTS when it is open. Not
  // stored: after a restart the caller opens its tenants again.
  [[nodiscard]] virtual Status open_tenant(TenantId tenant, std::uint64_t host_bytes) = 0;
  // Frees everything of the tenant, manifests included; its models must not be moving.
  virtual void close_tenant(TenantId tenant) = 0;
  // Host memory outside the pool that counts against the tenant's reservation, in whole chunks.
  // NO_CAPACITY: the rest of the reservation is smaller. refund: the same number of bytes, once;
  // fine for a tenant that is closed by now.
  [[nodiscard]] virtual Status charge(TenantId tenant, std::uint64_t bytes) = 0;
  virtual void refund(TenantId tenant, std::uint64_t bytes) = 0;

  // Admits a model within its tenant's reservation: committed segments twice (state and shadow;
  // once with `park_commits`, which a disk tier forbids), others once; the rest of the reservation
  // is for parked KV.
  // NO_CAPACITY names the numbers. A base has no tenant and needs no host memory. With
  // `park_commits` plan_commit says NO_CAPACITY and a dirty model that is parked may overwrite its
  // only copy: while that goes on nothing is committed (epoch 0). Continues with the stored
  // manifest when there is one; CORRUPT, once, when that is damaged or does not fit the segments:
  // it is erased, and the next add_model begins anew.
  [[nodiscard]] virtual Status add_model(ModelId model, TenantId tenant,
                                         std::vector<SegmentSpec> segments,
                                         bool park_commits = false) = 0;
  // Frees what it has in both tiers and its manifest, wherever it is; no call to the engine may be
  // under way for it. Also for a model that was not added and has a stored manifest; fine for an
  // unknown one. A manifest on its way to the disk is still told.
  virtual void remove_model(ModelId model) = 0;
  // Whole chunks, without kv.
  [[nodiscard]] virtual std::uint64_t device_bytes(ModelId model) const = 0;

  // Makes host memory ready for the plan, which must be made inside `ready`: fetches from the disk
  // tier, and spills to it what is needed later. Without a disk tier `ready` is called from inside
  // the call, with ok; else it may be later. Calls are served in order. Not called after
  // engine_lost() or remove_model(). Errors, on which nothing was lost unless they say so:
  // NO_CAPACITY, IO: no room could be made, or a segment could not be read this time; CORRUPT: the
  // model's only copy is damaged, the text names model, segment, blob and chunk, and it is at epoch
  // 0 again; LOST: parked gradients or KV are damaged, it is at its manifest.
  virtual void prepare(ModelId model, Need need, Ready ready) = 0;
  virtual void set_expected(Expected expected) = 0;
  // The expectations may have changed: fetches what is needed next, when there is room.
  virtual void prefetch() = 0;

  // All segments get device chunks, or none (NO_CAPACITY); parked gradients and KV come along.
  [[nodiscard]] virtual Result<MovePlan> plan_resume(ModelId model) = 0;
  virtual void resume_done(ModelId model) = 0;
  virtual void resume_failed(ModelId model) = 0;
  // After resume_done, while the engine still copies from the model's host chunks: they stay what
  // they are, besides what its own commits and suspends do. Ends with engine_lost(), too. unpin is
  // fine for an unknown model.
  virtual void pin(ModelId model) = 0;
  virtual void unpin(ModelId model) = 0;

  // KV of one op of a resident model; EXISTS when it has one. Host chunks are found when the model
  // is parked while the op is yielded. Freed while the model moves: at the end of the move.
  // free_kv: the engine has ended the op and maps none of it any more.
  [[nodiscard]] virtual Result<SegmentMove> allocate_kv(ModelId model, std::uint64_t bytes) = 0;
  virtual void free_kv(ModelId model) = 0;
  // The engine is asked to drop the op: the model has no KV any more, but its device chunks stay
  // taken until kv_dropped() with the number that this returns, or until the engine is lost or has
  // taken the model off the device. 0: it had none. kv_dropped is fine for an unknown model.
  [[nodiscard]] virtual std::uint64_t retire_kv(ModelId model) = 0;
  virtual void kv_dropped(ModelId model, std::uint64_t number) = 0;
  // Chunks are to come: what lacks device memory may wait for kv_dropped() or engine_lost().
  [[nodiscard]] virtual bool kv_retiring() const = 0;

  // The model's training state changed on the device (op applied). Segments that `now` shows to be
  // changed are dirty: a new version the sampler weights; a new step weights and moments; pending
  // gradients only those; none of it (a load) all. Not for saves to files: they change nothing.
  virtual void mark_dirty(ModelId model, const Position& now) = 0;

  // NO_CAPACITY: no host chunks for KV or gradients; go on running, free KV, or commit first. BUSY
  // while a move is under way, and while a commit is being copied; once it is copied (commit_done)
  // only when something changed since the copy.
  [[nodiscard]] virtual Result<MovePlan> plan_suspend(ModelId model) = 0;
  // The model is parked, its device chunks are free. The manifest flips when the state changed
  // since; until `flipped` the model must not be resumed. `position`: applied_seq as in
  // EngineMoved.seq. On an error it is parked at the old manifest: replay, as after engine_lost.
  virtual void suspend_done(ModelId model, const Position& position, Flipped flipped) = 0;
  virtual void suspend_failed(ModelId model) = 0;

  // Called right before a new manifest of the model is written: what has to be on disk before it is
  // written from inside the call. At most one, before the first plan.
  virtual void set_before_manifest(std::function<void(ModelId)> write) = 0;

  // NOT_FOUND when clean, BUSY while another commit or move is under way. Gradients are never
  // committed: they follow from the ops after the manifest's applied_seq.
  [[nodiscard]] virtual Result<MovePlan> plan_commit(ModelId model) = 0;
  // `position`: applied_seq as in EngineCommitted.seq. The commit is under way until `flipped`.
  // PROTOCOL when `epoch` is not the planned one. On an error the old manifest stays and the
  // segments are dirty again.
  virtual void commit_done(ModelId model, std::uint64_t epoch, const Position& position,
                           Flipped flipped) = 0;
  virtual void commit_failed(ModelId model) = 0;
  // A manifest whose write failed may be on disk all the same. Before anybody is told what the
  // state is now, the old one is written again. When the store does not take that either, the old
  // one, or the erasure where nothing is committed or a park may write over it, is put in `later`,
  // for a batch that is written before the next manifest.
  virtual void settle_manifest(ModelId model, store::Batch& later) = 0;

  // The engine died: device chunks are free, uncommitted changes are gone, parked gradients and KV
  // too, a move under way failed. Returns the position of the manifest, from which ops must be
  // replayed. Fine for a model that is parked. The caller has settled the store: no manifest is on
  // its way.
  virtual Position engine_lost(ModelId model) = 0;
  // plexrld restarted and the engine still holds the model on these device chunks. KV is left out:
  // its op is unknown by now. PROTOCOL when it does not fit the segments or chunks are taken.
  [[nodiscard]] virtual Status adopt(ModelId model, const std::vector<SegmentMove>& held,
                                     const Position& position) = 0;

  [[nodiscard]] virtual const Manifest* manifest(ModelId model) const = 0;  // null: unknown model
  // One JSON document: pools, tenants, models, segments, tiers, epochs, dirty/clean.
  [[nodiscard]] virtual std::string table_json() const = 0;
};

// Reads the stored manifests; their chunks are taken from the start, so that nobody gets them
// before their models are added again. `host_pool_is_new`: the host pool does not hold what the
// manifests say (no engine gave it back); those that need it are erased. Blobs that none names are
// removed. IO, CORRUPT: the store cannot be read. INVALID_ARGUMENT: blobs, and no disk tier.
[[nodiscard]] Result<std::unique_ptr<StateManager>> open_state_manager(const PoolSizes& sizes,
                                                                       store::AsyncStore& store,
                                                                       bool host_pool_is_new,
                                                                       DiskOptions disk = {});

}  // namespace plexrl::state
