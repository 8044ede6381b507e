// SPDX-License-Identifier: Apache-2.0
// The rows of manifests in the store: how one is replaced, erased, and doubted, and which chunks it
// keeps meanwhile.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/log.h"
#include "state/chunk_state_manager.h"
#include "state/manifest_codec.h"
#include "store/async_store.h"

namespace plexrl::state {

// ---- erased ----

// Until the row is gone it keeps its chunks and blobs, or the next start would find them owned
// twice.
void ChunkStateManager::erase_stored(ModelId model, const Chunks& chunks,
                                     const std::vector<BlobId>& blobs) {
  stored_.erase(model);
  damaged_.erase(model);
  erase_row({model, chunks, blobs});
}

void ChunkStateManager::erase_row(StaleRow row) {
  store::Batch batch;
  batch.erase(kManifestTable, row.model.value, kManifestSubkey, kManifestSubkey);
  store_.write(std::make_shared<const store::Batch>(std::move(batch)),
               [this, row = std::move(row)](const Status& status) {
                 if (status.ok()) {
                   release(row.model, row.chunks, row.blobs);
                   return erase_stale_rows();
                 }
                 PLEXRL_LOG(kWarning,
                            "manifest of model %" PRIu64
                            " stays until the store takes rows again, with %zu chunks: %s",
                            row.model.value, row.chunks.size(), status.to_string().c_str());
                 stale_.push_back(row);
               });
}

// The store has just taken a row, so it may take these again. A model of that number may have been
// added anew: its manifest is written where the old one is.
void ChunkStateManager::erase_stale_rows() {
  for (StaleRow& row : std::exchange(stale_, {})) {
    const auto found = models_.find(row.model);
    const bool anew = found != models_.end();
    if (anew && (found->second.flip || found->second.in_doubt)) {
      stale_.push_back(std::move(row));
    } else if (anew && found->second.manifest.epoch > 0) {
      release(row.model, row.chunks, row.blobs);
    } else {
      erase_row(std::move(row));
    }
  }
}

// A removed model's places, when nobody copies from or to them any more.
void ChunkStateManager::release(ModelId model, const Chunks& chunks,
                                const std::vector<BlobId>& blobs) {
  const auto free = [this, chunks, blobs] {
    host_.give_back(chunks);
    for (const BlobId blob : blobs) remove_blob(blob);
    wake();
  };
  const auto transfer = transfers_.find(model);
  if (transfer == transfers_.end()) return free();
  transfer->second.when_over = free;
}

// ---- replaced ----

// Old chunks are free only after the store has the new manifest: whatever dies before that finds
// the old state whole, whatever dies after it the new one.
void ChunkStateManager::flip(ModelId model, ModelRecord& record, const Position& position,
                             Flipped flipped) {
  Manifest next;
  next.model = model;
  next.epoch = record.copy->epoch;
  next.position = position;
  next.position.gradients_pending = false;
  next.entries = record.copy->entries;
  Chunks replaced;
  std::vector<BlobId> replaced_blobs;
  for (const auto& entry : record.manifest.entries) {
    const bool copied = std::any_of(next.entries.begin(), next.entries.end(),
                                    [&](const auto& other) { return other.kind == entry.kind; });
    if (copied) replaced.insert(replaced.end(), entry.host.begin(), entry.host.end());
    if (copied && entry.blob) replaced_blobs.push_back(entry.blob);
    if (!copied) next.entries.push_back(entry);
  }
  if (before_manifest_) before_manifest_(model);
  store::Batch batch;
  batch.put(kManifestTable, model.value, kManifestSubkey, encode_manifest(next));
  record.flip = ModelRecord::Flip{std::move(next), std::move(replaced), std::move(replaced_blobs)};
  store_.write(std::make_shared<const store::Batch>(std::move(batch)),
               [this, model, done = std::move(flipped)](const Status& status) {
                 const Status stored = flip_answered(model, status);
                 done(stored);
                 settle_parking(model, stored);
               });
}

// A suspend may have ended meanwhile.
void ChunkStateManager::settle_parking(ModelId model, const Status& stored) {
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.parking) return;
  const ModelRecord::Parking parking = *std::exchange(found->second.parking, std::nullopt);
  if (!stored.ok()) return parking.flipped(stored);
  settle_parked(model, found->second, parking.position, parking.flipped);
}

// The model may have been removed meanwhile; its chunks went with the erase of its row.
Status ChunkStateManager::flip_answered(ModelId model, const Status& status) {
  const auto found = models_.find(model);
  if (found == models_.end())
    return error(Code::CANCELLED, "model %" PRIu64 " was removed", model.value);
  ModelRecord& record = found->second;
  if (status.ok()) {
    host_.give_back(record.flip->replaced);
    for (const BlobId blob : record.flip->replaced_blobs) remove_blob(blob);
    record.manifest = std::move(record.flip->next);
  } else {
    flip_failed(record);
  }
  record.flip.reset();
  record.copy.reset();
  wake();
  if (record.tier == Tier::kParked) parked_at_manifest(record);
  if (status.ok()) erase_stale_rows();
  return status.within("model " + std::to_string(model.value) + ": commit");
}

// Parked at the old manifest, the ops since are replayed, the gradients among them.
void ChunkStateManager::flip_failed(ModelRecord& record) {
  record.in_doubt = true;
  for (const auto& entry : record.copy->entries) {
    record.doubtful.insert(record.doubtful.end(), entry.host.begin(), entry.host.end());
    record.dirty.insert(entry.kind);
  }
  if (record.tier == Tier::kParked) drop_gradients(record);
}

// A write that failed may still have reached the disk. Writing the old manifest again settles it.
Status ChunkStateManager::settle_doubt(ModelId model, ModelRecord& record) {
  if (!record.in_doubt) return {};
  const Status status = record.manifest.epoch > 0
                            ? store_.put(kManifestTable, model.value, kManifestSubkey,
                                         encode_manifest(record.manifest))
                            : store_.erase(kManifestTable, model.value, kManifestSubkey);
  if (!status.ok()) return status.within("model " + std::to_string(model.value));
  host_.give_back(record.doubtful);
  record.doubtful.clear();
  for (const BlobId blob : record.doubtful_blobs) remove_blob(blob);
  record.doubtful_blobs.clear();
  record.in_doubt = false;
  return {};
}

void ChunkStateManager::settle_manifest(ModelId model, store::Batch& later) {
  ModelRecord& record = at(model);
  if (settle_doubt(model, record).ok()) return;
  // A park that writes over the only copy may come before the batch is on disk.
  if (record.manifest.epoch > 0 && !record.park_commits)
    return later.put(kManifestTable, model.value, kManifestSubkey,
                     encode_manifest(record.manifest));
  later.erase(kManifestTable, model.value, kManifestSubkey, kManifestSubkey);
}

}  // namespace plexrl::state
