// SPDX-License-Identifier: Apache-2.0
// StateManager: the one table of what is where. Owns the allocation of the device pool's and the
// host pool's chunks and the manifests; plans moves, which the engine carries out, and flips
// manifests when it reports success. Writes manifests and tenants' reservations through the
// StateStore before it treats them as true. Loop thread only; no copying, no blocking beyond the
// StateStore.
//
// Life of a move: plan_x() allocates and marks; exactly one of x_done() / x_failed() follows. Freed
// chunks may be handed out again only after the done/failed call.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "state/segment.h"

namespace plexrl::store {
class StateStore;
}

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

class StateManager {
 public:
  virtual ~StateManager() = default;

  // Reserves host memory for `host_bytes` of the tenant's grant; NO_CAPACITY when the pool cannot
  // hold it beside all earlier grants.
  [[nodiscard]] virtual Status open_tenant(TenantId tenant, std::uint64_t host_bytes) = 0;
  // Frees everything of the tenant; its models must not be moving.
  virtual void close_tenant(TenantId tenant) = 0;

  // Admits a model within its tenant's reservation: committed segments twice (state and shadow;
  // once when `park_commits`), others once. NO_CAPACITY names the numbers. A base has no tenant and
  // needs no host memory. Continues with the stored manifest when there is one.
  [[nodiscard]] virtual Status add_model(ModelId model, TenantId tenant,
                                         std::vector<SegmentSpec> segments,
                                         bool park_commits = false) = 0;
  virtual void remove_model(ModelId model) = 0;
  [[nodiscard]] virtual std::uint64_t device_bytes(
      ModelId model) const = 0;  // whole chunks, without kv

  [[nodiscard]] virtual Result<MovePlan> plan_resume(ModelId model) = 0;
  virtual void resume_done(ModelId model) = 0;
  virtual void resume_failed(ModelId model) = 0;

  // KV of one op; device chunks now, host chunks when the model is parked while the op is yielded.
  [[nodiscard]] virtual Result<SegmentMove> allocate_kv(ModelId model, std::uint64_t bytes) = 0;
  virtual void free_kv(ModelId model) = 0;

  // The model's training state changed on the device (op applied): committed segments are dirty.
  virtual void mark_dirty(ModelId model, const Position& now) = 0;

  [[nodiscard]] virtual Result<MovePlan> plan_suspend(ModelId model) = 0;
  // Flips the manifest to the suspended state when something was dirty.
  [[nodiscard]] virtual Status suspend_done(ModelId model, const Position& position) = 0;
  virtual void suspend_failed(ModelId model) = 0;

  // NOT_FOUND when clean, BUSY while another commit or move is under way.
  [[nodiscard]] virtual Result<MovePlan> plan_commit(ModelId model) = 0;
  [[nodiscard]] virtual Status commit_done(ModelId model, std::uint64_t epoch,
                                           const Position& position) = 0;
  virtual void commit_failed(ModelId model) = 0;

  // The engine died: device chunks are free, uncommitted changes are gone, a move under way failed.
  // Returns the position of the manifest, from which ops must be replayed.
  virtual Position engine_lost(ModelId model) = 0;
  // plexrld restarted and the engine still holds the model on these device chunks.
  [[nodiscard]] virtual Status adopt(ModelId model, const std::vector<SegmentMove>& held,
                                     const Position& position) = 0;

  [[nodiscard]] virtual const Manifest* manifest(ModelId model) const = 0;
  // One JSON document: pools, tenants, models, segments, tiers, epochs, dirty/clean.
  [[nodiscard]] virtual std::string table_json() const = 0;
};

// Reads the stored manifests; their chunks are taken from the start, so that nobody gets them
// before their models are added again. `host_pool_is_new`: the host pool does not hold what the
// manifests say (no engine gave it back); they are erased. IO, CORRUPT: the store cannot be read.
[[nodiscard]] Result<std::unique_ptr<StateManager>> open_state_manager(const PoolSizes& sizes,
                                                                       store::StateStore& store,
                                                                       bool host_pool_is_new);

}  // namespace plexrl::state
