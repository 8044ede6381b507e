// SPDX-License-Identifier: Apache-2.0
// ChunkStateManager: the StateManager over two chunk allocators and an AsyncStore.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "state/chunk_allocator.h"
#include "state/model_record.h"
#include "state/state_manager.h"

namespace plexrl::state {

class ChunkStateManager final : public StateManager {
 public:
  ChunkStateManager(const PoolSizes& sizes, store::AsyncStore& store);
  // Takes the chunks of all stored manifests, or erases them.
  [[nodiscard]] Status load(bool host_pool_is_new);

  Status open_tenant(TenantId tenant, std::uint64_t host_bytes) override;
  void close_tenant(TenantId tenant) override;
  Status add_model(ModelId model, TenantId tenant, std::vector<SegmentSpec> segments,
                   bool park_commits) override;
  void remove_model(ModelId model) override;
  [[nodiscard]] std::uint64_t device_bytes(ModelId model) const override;
  Result<MovePlan> plan_resume(ModelId model) override;
  void resume_done(ModelId model) override;
  void resume_failed(ModelId model) override;
  Result<SegmentMove> allocate_kv(ModelId model, std::uint64_t bytes) override;
  void free_kv(ModelId model) override;
  void mark_dirty(ModelId model, const Position& now) override;
  Result<MovePlan> plan_suspend(ModelId model) override;
  void suspend_done(ModelId model, const Position& position, Flipped flipped) override;
  void suspend_failed(ModelId model) override;
  Result<MovePlan> plan_commit(ModelId model) override;
  void commit_done(ModelId model, std::uint64_t epoch, const Position& position,
                   Flipped flipped) override;
  void commit_failed(ModelId model) override;
  Position engine_lost(ModelId model) override;
  Status adopt(ModelId model, const std::vector<SegmentMove>& held,
               const Position& position) override;
  [[nodiscard]] const Manifest* manifest(ModelId model) const override;
  [[nodiscard]] std::string table_json() const override;

 private:
  struct Tenant {
    std::uint64_t reserved = 0;  // all in host chunks
    std::uint64_t admitted = 0;
    std::uint64_t kv = 0;  // parked
  };

  ModelRecord& at(ModelId model);
  [[nodiscard]] const ModelRecord& at(ModelId model) const;
  [[nodiscard]] std::uint64_t chunks_of(std::uint64_t bytes) const;
  [[nodiscard]] Status check_segments(const ModelRecord& record) const;
  [[nodiscard]] Status admit(ModelId model, ModelRecord& record);
  [[nodiscard]] Status continue_stored(ModelId model, ModelRecord& record);
  void erase_stored(ModelId model, const Chunks& chunks);

  [[nodiscard]] Status map_all(ModelId model, ModelRecord& record, MovePlan& plan);
  void unmap_all(ModelRecord& record);

  [[nodiscard]] Status plan_copy(ModelId model, ModelRecord& record);
  [[nodiscard]] Status allocate_shadow(ModelId model, ModelRecord& record);
  [[nodiscard]] Status recycle_copy(ModelId model, ModelRecord& record);
  [[nodiscard]] Status park_extras(ModelId model, ModelRecord& record);
  void flip(ModelId model, ModelRecord& record, const Position& position, Flipped flipped);
  [[nodiscard]] Status flip_answered(ModelId model, const Status& status);
  void flip_failed(ModelRecord& record);
  void parked_at_manifest(ModelRecord& record);
  void drop_copy(ModelRecord& record, bool dirty_again);
  void drop_gradients(ModelRecord& record);
  void drop_kv(ModelRecord& record);
  void drop_kv_host(ModelRecord& record);
  [[nodiscard]] Status settle_doubt(ModelId model, ModelRecord& record);
  [[nodiscard]] Chunks take_host(std::uint64_t count, Status& status, const char* what);

  PoolSizes sizes_;
  store::AsyncStore& store_;
  ChunkAllocator device_;
  ChunkAllocator host_;
  std::map<TenantId, Tenant> tenants_;
  std::map<ModelId, ModelRecord> models_;
  std::map<ModelId, Manifest> stored_;      // read at start, model not added yet
  std::map<ModelId, std::string> damaged_;  // why the stored one cannot be used
};

}  // namespace plexrl::state
