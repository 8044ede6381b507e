// SPDX-License-Identifier: Apache-2.0
// ChunkStateManager: the StateManager over two chunk allocators, an AsyncStore and, where there is
// one, a DiskTier. tier_moves.cc has what goes between host memory and disk, kv_memory.cc the KV.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "state/chunk_allocator.h"
#include "state/disk_tier.h"
#include "state/model_record.h"
#include "state/state_manager.h"

namespace plexrl::state {

class ChunkStateManager final : public StateManager {
 public:
  ChunkStateManager(const PoolSizes& sizes, store::AsyncStore& store, DiskOptions disk);
  // Takes the chunks of all stored manifests, or erases them.
  [[nodiscard]] Status load(bool host_pool_is_new);

  Status open_tenant(TenantId tenant, std::uint64_t host_bytes) override;
  void close_tenant(TenantId tenant) override;
  [[nodiscard]] Status charge(TenantId tenant, std::uint64_t bytes) override;
  void refund(TenantId tenant, std::uint64_t bytes) override;
  Status add_model(ModelId model, TenantId tenant, std::vector<SegmentSpec> segments,
                   bool park_commits) override;
  void remove_model(ModelId model) override;
  [[nodiscard]] std::uint64_t device_bytes(ModelId model) const override;
  void prepare(ModelId model, Need need, Ready ready) override;
  void set_expected(Expected expected) override { expected_ = std::move(expected); }
  void prefetch() override;
  void set_before_manifest(std::function<void(ModelId)> write) override {
    before_manifest_ = std::move(write);
  }
  Result<MovePlan> plan_resume(ModelId model) override;
  void resume_done(ModelId model) override;
  void resume_failed(ModelId model) override;
  void pin(ModelId model) override { at(model).pinned = true; }
  void unpin(ModelId model) override;
  Result<SegmentMove> allocate_kv(ModelId model, std::uint64_t bytes) override;
  void free_kv(ModelId model) override;
  std::uint64_t retire_kv(ModelId model) override;
  void kv_dropped(ModelId model, std::uint64_t number) override;
  [[nodiscard]] bool kv_retiring() const override;
  void mark_dirty(ModelId model, const Position& now) override;
  Result<MovePlan> plan_suspend(ModelId model) override;
  void suspend_done(ModelId model, const Position& position, Flipped flipped) override;
  void suspend_failed(ModelId model) override;
  Result<MovePlan> plan_commit(ModelId model) override;
  void commit_done(ModelId model, std::uint64_t epoch, const Position& position,
                   Flipped flipped) override;
  void commit_failed(ModelId model) override;
  void settle_manifest(ModelId model, store::Batch& later) override;
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
  [[nodiscard]] Status load_row(ModelId model, std::string_view row, bool host_pool_is_new);
  [[nodiscard]] Status adopt_places(const Manifest& manifest);
  void release(ModelId model, const Chunks& chunks, const std::vector<BlobId>& blobs);
  void orphan(Transfer& transfer, std::vector<BlobId>& blobs);
  // A row that must go, and what it keeps taken.
  struct StaleRow {
    ModelId model;
    Chunks chunks;
    std::vector<BlobId> blobs;
  };
  void erase_stored(ModelId model, const Chunks& chunks, const std::vector<BlobId>& blobs);
  void erase_row(StaleRow row);
  void erase_stale_rows();

  [[nodiscard]] Status map_all(ModelId model, ModelRecord& record, MovePlan& plan);
  void unmap_all(ModelRecord& record);

  [[nodiscard]] Status plan_copy(ModelId model, ModelRecord& record);
  [[nodiscard]] Status allocate_shadow(ModelId model, ModelRecord& record);
  [[nodiscard]] Status recycle_copy(ModelId model, ModelRecord& record);
  [[nodiscard]] Status park_extras(ModelId model, ModelRecord& record);
  void flip(ModelId model, ModelRecord& record, const Position& position, Flipped flipped);
  [[nodiscard]] Status flip_answered(ModelId model, const Status& status);
  void settle_parking(ModelId model, const Status& stored);
  void settle_parked(ModelId model, ModelRecord& record, const Position& position, Flipped flipped);
  void flip_failed(ModelRecord& record);
  void parked_at_manifest(ModelRecord& record);
  void drop_copy(ModelRecord& record, bool dirty_again);
  void drop_gradients(ModelRecord& record);
  void drop_kv(ModelRecord& record);
  void drop_leaving_kv(ModelRecord& record);
  void drop_retired_kv(ModelRecord& record);
  void drop_kv_host(ModelRecord& record);
  [[nodiscard]] Status settle_doubt(ModelId model, ModelRecord& record);
  void drop_parked(const ModelRecord& record, SegmentKind kind, Chunks& host, BlobId& blob);
  [[nodiscard]] Chunks take_host(std::uint64_t count, Status& status, const char* what);

  // Between host memory and disk.
  struct Request {
    ModelId model;
    Need need = Need::kResume;
    bool prefetch = false;  // nobody waits for it
    Ready ready;
    std::set<ModelId> failed;  // could not be spilled
    Status why;                // the last of them
  };
  using Requests = std::deque<Request>;
  void wake();
  void pump();
  [[nodiscard]] bool advance();
  [[nodiscard]] bool make_room(Requests::iterator request, std::uint64_t wanted);
  void answer(Requests::iterator request, const Status& status);
  void drop_requests(ModelId model);
  [[nodiscard]] std::vector<Piece> to_fetch(const ModelRecord& record) const;
  [[nodiscard]] std::vector<Piece> to_spill(const ModelRecord& record, std::uint64_t lacking) const;
  [[nodiscard]] std::uint64_t copy_chunks(const ModelRecord& record, Need need) const;
  [[nodiscard]] std::vector<ModelId> victims(ModelId spared, bool unexpected_only) const;
  [[nodiscard]] bool others_move(ModelId model) const;
  void drop_caches(const std::vector<ModelId>& models, std::uint64_t wanted);
  void start_fetch(ModelId model, std::vector<Piece> pieces);
  [[nodiscard]] bool start_spill(ModelId model, std::uint64_t lacking);
  void copy_next(ModelId model, Transfer& transfer);
  void piece_over(ModelId model, const Status& status);
  void fetch_over(ModelId model, const Status& status);
  void fetched(ModelRecord& record, Piece& piece);
  void fetch_failed(ModelId model, SegmentKind kind, const Status& status);
  void lose_state(ModelId model, ModelRecord& record);
  void spill_copied(ModelId model, const Status& status);
  void spilled_extra(ModelRecord& record, Piece& piece);
  void spill_stored(ModelId model, const Status& status);
  void spill_failed(ModelId model, const Status& status);
  void end_transfer(ModelId model);
  void remove_blob(BlobId blob);

  PoolSizes sizes_;
  store::AsyncStore& store_;
  ChunkAllocator device_;
  ChunkAllocator host_;
  std::map<TenantId, Tenant> tenants_;
  std::map<ModelId, ModelRecord> models_;
  std::map<ModelId, Manifest> stored_;      // read at start, model not added yet
  std::vector<StaleRow> stale_;             // the store did not take their erase
  std::map<ModelId, std::string> damaged_;  // why the stored one cannot be used

  std::unique_ptr<DiskTier> disk_;  // null: there is none
  Expected expected_;
  std::function<void(ModelId)> before_manifest_;  // may be empty
  Requests requests_;
  std::map<ModelId, Transfer> transfers_;
  std::set<ModelId> not_prefetched_;  // there was no room; until some is free
  std::uint64_t uses_ = 0;
  std::uint64_t last_retired_ = 0;  // KV
  bool pumping_ = false;
  bool woken_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for what is posted
};

}  // namespace plexrl::state
