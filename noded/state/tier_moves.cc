// SPDX-License-Identifier: Apache-2.0
// What goes between host memory and the disk tier. doc/state.md, "Disk tier", says why nothing is
// lost, and why whoever waits for room gets it.
#include <algorithm>
#include <cinttypes>

#include "base/check.h"
#include "base/log.h"
#include "state/chunk_state_manager.h"
#include "state/manifest_codec.h"
#include "store/async_store.h"

namespace plexrl::state {
namespace {

bool is_extra(SegmentKind kind) {
  return kind == SegmentKind::kGradients || kind == SegmentKind::kKv;
}

Manifest::Entry& entry_of(Manifest& manifest, SegmentKind kind) {
  for (auto& entry : manifest.entries)
    if (entry.kind == kind) return entry;
  check_failed("entry", "a segment that the manifest does not have", __FILE__, __LINE__);
}

}  // namespace

// ---- requests ----

void ChunkStateManager::prepare(ModelId model, Need need, Ready ready) {
  if (disk_ == nullptr) return ready({});
  requests_.push_back({model, need, false, std::move(ready), {}, {}});
  pump();
}

// Later, as whoever changed something is in the middle of it.
void ChunkStateManager::wake() {
  not_prefetched_.clear();
  if (disk_ == nullptr || woken_ || requests_.empty()) return;
  woken_ = true;
  disk_->post([this, alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired()) return;
    woken_ = false;
    pump();
  });
}

void ChunkStateManager::unpin(ModelId model) {
  const auto found = models_.find(model);
  if (found == models_.end()) return;
  found->second.pinned = false;
  wake();
}

void ChunkStateManager::pump() {
  if (pumping_) return;
  pumping_ = true;
  while (!requests_.empty() && advance()) {
  }
  pumping_ = false;
}

// The first request for which somebody waits; false when it has to wait for something.
bool ChunkStateManager::advance() {
  auto request = std::find_if(requests_.begin(), requests_.end(),
                              [](const Request& one) { return !one.prefetch; });
  if (request == requests_.end()) request = requests_.begin();
  if (transfers_.contains(request->model)) return false;
  ModelRecord& record = at(request->model);
  if (request->need != Need::kResume) {
    // Chunks in doubt are room, too; when that fails, so does the plan, with the reason.
    static_cast<void>(settle_doubt(request->model, record));
    const std::uint64_t wanted = copy_chunks(record, request->need);
    if (wanted > host_.free()) return make_room(request, wanted);
    answer(request, {});
    return true;
  }
  auto missing = to_fetch(record);
  if (missing.empty()) {
    answer(request, {});
    return true;
  }
  std::uint64_t wanted = 0;
  for (const Piece& piece : missing) wanted += chunks_of(piece.bytes);
  if (wanted > host_.free()) return make_room(request, wanted);
  start_fetch(request->model, std::move(missing));
  return false;
}

void ChunkStateManager::answer(Requests::iterator request, const Status& status) {
  const Request done = std::move(*request);
  requests_.erase(request);
  if (done.prefetch && status.code() == Code::NO_CAPACITY) not_prefetched_.insert(done.model);
  if (done.ready) done.ready(status);
}

void ChunkStateManager::drop_requests(ModelId model) {
  std::erase_if(requests_, [model](const Request& one) { return one.model == model; });
}

// Gradients and KV first, one at a time: their blobs go as soon as they are read, and only then is
// the state, whose blobs stay, put beside them. That is what keeps a model within its reservation.
std::vector<Piece> ChunkStateManager::to_fetch(const ModelRecord& record) const {
  if (record.gradients_blob) {
    const std::uint64_t bytes = record.find(SegmentKind::kGradients)->bytes;
    return {Piece{SegmentKind::kGradients, bytes, {}, record.gradients_blob, false, false}};
  }
  if (record.kv && record.kv->blob)
    return {Piece{SegmentKind::kKv, record.kv->bytes, {}, record.kv->blob, false, false}};
  std::vector<Piece> pieces;
  for (const auto& entry : record.manifest.entries)
    if (entry.host.empty())
      pieces.push_back(Piece{entry.kind, entry.bytes, {}, entry.blob, false, false});
  return pieces;
}

std::uint64_t ChunkStateManager::copy_chunks(const ModelRecord& record, Need need) const {
  std::uint64_t chunks = 0;
  for (const SegmentSpec& spec : record.to_copy()) chunks += chunks_of(spec.bytes);
  if (need == Need::kCommit) return chunks;
  const SegmentSpec* const gradients = record.find(SegmentKind::kGradients);
  if (gradients != nullptr && record.now.gradients_pending) chunks += chunks_of(gradients->bytes);
  if (record.kv) chunks += chunks_of(record.kv->bytes);
  return chunks;
}

// ---- room ----

bool ChunkStateManager::make_room(Requests::iterator request, std::uint64_t wanted) {
  const auto order = victims(request->model, request->prefetch);
  drop_caches(order, wanted);
  if (wanted <= host_.free()) return true;
  // What is under way may free enough; one thing at a time also keeps the order of need.
  if (!transfers_.empty() || disk_->removing()) return false;
  for (const ModelId model : order)
    if (!request->failed.contains(model) && start_spill(model, wanted - host_.free())) return false;
  if (!request->prefetch && others_move(request->model)) return false;
  Status status =
      error(Code::NO_CAPACITY,
            "model %" PRIu64 " needs %" PRIu64 " bytes of host memory, %" PRIu64
            " are free, and nothing more can go to the disk tier",
            request->model.value, wanted * sizes_.chunk_bytes, host_.free() * sizes_.chunk_bytes);
  if (!request->why.ok()) status = request->why.within(status.text());
  answer(request, status);
  return true;
}

// Models whose host chunks may be taken. First who is not expected to run, the one that was used
// longest ago in front; then who is on the device, whose copy is of use after a crash only; then
// who is expected, the last one in front.
std::vector<ModelId> ChunkStateManager::victims(ModelId spared, bool unexpected_only) const {
  const std::vector<ModelId> expected = expected_ ? expected_() : std::vector<ModelId>{};
  using Rank = std::pair<std::uint64_t, std::uint64_t>;
  std::vector<std::pair<Rank, ModelId>> ranked;
  for (const auto& [id, record] : models_) {
    if (id == spared || !record.at_rest() || transfers_.contains(id)) continue;
    const auto turn = std::find(expected.begin(), expected.end(), id);
    if (record.tier == Tier::kResident) {
      ranked.push_back({{1, record.last_used}, id});
    } else if (turn == expected.end()) {
      ranked.push_back({{0, record.last_used}, id});
    } else if (!unexpected_only) {
      ranked.push_back({{2, static_cast<std::uint64_t>(expected.end() - turn)}, id});
    }
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<ModelId> models;
  for (const auto& [rank, id] : ranked) models.push_back(id);
  return models;
}

bool ChunkStateManager::others_move(ModelId model) const {
  return std::any_of(models_.begin(), models_.end(),
                     [&](const auto& one) { return one.first != model && !one.second.at_rest(); });
}

// Host chunks of segments that are in a blob as well.
void ChunkStateManager::drop_caches(const std::vector<ModelId>& models, std::uint64_t wanted) {
  for (const ModelId model : models) {
    for (auto& entry : at(model).manifest.entries) {
      if (wanted <= host_.free()) return;
      if (!entry.blob) continue;
      host_.give_back(entry.host);
      entry.host.clear();
    }
  }
}

// As many segments as are needed, those that fit in the disk tier.
std::vector<Piece> ChunkStateManager::to_spill(const ModelRecord& record,
                                               std::uint64_t lacking) const {
  std::vector<Piece> pieces;
  std::uint64_t chunks = 0;
  const auto offer = [&](SegmentKind kind, std::uint64_t bytes, const Chunks& host) {
    if (host.empty() || chunks >= lacking || !disk_->fits(chunks + host.size())) return;
    chunks += host.size();
    pieces.push_back(Piece{kind, bytes, host, {}, false, false});
  };
  for (const auto& entry : record.manifest.entries)
    if (!entry.blob) offer(entry.kind, entry.bytes, entry.host);
  if (record.tier != Tier::kParked) return pieces;
  if (const SegmentSpec* const spec = record.find(SegmentKind::kGradients))
    offer(spec->kind, spec->bytes, record.gradients);
  if (record.kv) offer(SegmentKind::kKv, record.kv->bytes, record.kv->host);
  return pieces;
}

// ---- transfers ----

bool ChunkStateManager::start_spill(ModelId model, std::uint64_t lacking) {
  ModelRecord& record = at(model);
  // Its row says nothing certain: what is in doubt would be doubtful twice.
  if (!settle_doubt(model, record).ok()) return false;
  Transfer transfer;
  transfer.pieces = to_spill(record, lacking);
  if (transfer.pieces.empty()) return false;
  for (Piece& piece : transfer.pieces) piece.blob = disk_->add(piece.host.size());
  copy_next(model, transfers_[model] = std::move(transfer));
  return true;
}

void ChunkStateManager::start_fetch(ModelId model, std::vector<Piece> pieces) {
  Transfer transfer;
  transfer.fetch = true;
  transfer.pieces = std::move(pieces);
  for (Piece& piece : transfer.pieces) piece.host = *host_.allocate(chunks_of(piece.bytes));
  copy_next(model, transfers_[model] = std::move(transfer));
}

void ChunkStateManager::copy_next(ModelId model, Transfer& transfer) {
  disk_->start(model, transfer, [this, model](const Status& status) { piece_over(model, status); });
}

void ChunkStateManager::piece_over(ModelId model, const Status& status) {
  Transfer& transfer = transfers_.at(model);
  transfer.pieces[transfer.at].copied = status.ok();
  const bool more = ++transfer.at < transfer.pieces.size();
  if (status.ok() && more && !transfer.orphan) return copy_next(model, transfer);
  if (transfer.fetch) {
    fetch_over(model, status);
  } else {
    spill_copied(model, status);
  }
}

void ChunkStateManager::end_transfer(ModelId model) {
  const auto over = std::move(transfers_.at(model).when_over);
  transfers_.erase(model);
  if (over) over();
  wake();
}

void ChunkStateManager::remove_blob(BlobId blob) {
  disk_->remove(blob, [this, alive = std::weak_ptr<int>(alive_)] {
    if (!alive.expired()) wake();
  });
}

// Its model is being removed. Blobs that a row on its way names go when the row is erased.
void ChunkStateManager::orphan(Transfer& transfer, std::vector<BlobId>& blobs) {
  transfer.orphan = true;
  disk_->cancel(transfer);
  for (const Piece& piece : transfer.pieces)
    if (transfer.storing && !is_extra(piece.kind)) blobs.push_back(piece.blob);
}

// What is being copied stays the transfer's until that is over.
void ChunkStateManager::drop_parked(const ModelRecord& record, SegmentKind kind, Chunks& host,
                                    BlobId& blob) {
  bool copied = false;
  if (const auto found = transfers_.find(record.manifest.model); found != transfers_.end()) {
    for (Piece& piece : found->second.pieces) {
      if (piece.kind != kind) continue;
      piece.dropped = copied = true;
    }
  }
  if (!copied) {
    host_.give_back(host);
    if (blob) remove_blob(blob);
  }
  host.clear();
  blob = {};
}

// ---- from disk ----

void ChunkStateManager::fetch_over(ModelId model, const Status& status) {
  Transfer& transfer = transfers_.at(model);
  const bool gone = transfer.orphan;
  const SegmentKind last = transfer.pieces[transfer.at - 1].kind;
  for (Piece& piece : transfer.pieces) {
    if (piece.copied && !piece.dropped && !gone) {
      fetched(at(model), piece);
      continue;
    }
    host_.give_back(piece.host);
    if (piece.dropped) remove_blob(piece.blob);
  }
  end_transfer(model);
  if (!status.ok() && !gone) fetch_failed(model, last, status);
}

void ChunkStateManager::fetched(ModelRecord& record, Piece& piece) {
  if (piece.kind == SegmentKind::kGradients) {
    record.gradients = std::move(piece.host);
    record.gradients_blob = {};
  } else if (piece.kind == SegmentKind::kKv) {
    record.kv->host = std::move(piece.host);
    record.kv->blob = {};
  } else {
    entry_of(record.manifest, piece.kind).host = std::move(piece.host);
    return;
  }
  remove_blob(piece.blob);
}

// A damaged blob is found out when somebody needs it, not when it is prefetched.
void ChunkStateManager::fetch_failed(ModelId model, SegmentKind kind, const Status& status) {
  const auto request = std::find_if(requests_.begin(), requests_.end(), [&](const Request& one) {
    return one.model == model && one.need == Need::kResume;
  });
  if (request == requests_.end()) return;
  ModelRecord& record = at(model);
  const bool damaged = status.code() == Code::CORRUPT || status.code() == Code::NOT_FOUND;
  Status told = status;
  if (request->prefetch) {
    record.unreadable = true;
  } else if (damaged && is_extra(kind)) {
    told = error(Code::LOST, "%s", status.text().c_str());
    if (kind == SegmentKind::kKv) drop_kv(record);
    drop_gradients(record);
    record.now = record.manifest.position;
  } else if (damaged) {
    told = error(Code::CORRUPT, "%s", status.text().c_str());
    lose_state(model, record);
  }
  answer(request, told);
}

// Nothing of it can be trusted any more; it begins anew.
void ChunkStateManager::lose_state(ModelId model, ModelRecord& record) {
  Chunks chunks = std::move(record.doubtful);
  std::vector<BlobId> blobs = std::move(record.doubtful_blobs);
  for (const auto& entry : record.manifest.entries) {
    chunks.insert(chunks.end(), entry.host.begin(), entry.host.end());
    if (entry.blob) blobs.push_back(entry.blob);
  }
  record.doubtful.clear();
  record.doubtful_blobs.clear();
  record.in_doubt = false;
  drop_gradients(record);
  erase_stored(model, chunks, blobs);
  record.manifest = Manifest{model, 0, {}, {}};
  record.now = {};
  record.dirty.clear();
}

// ---- to disk ----

// All blobs are whole. The row that names them is the flip; until it is on disk the host chunks
// stay.
void ChunkStateManager::spill_copied(ModelId model, const Status& status) {
  Transfer& transfer = transfers_.at(model);
  if (!status.ok() || transfer.orphan) return spill_failed(model, status);
  ModelRecord& record = at(model);
  Manifest next = record.manifest;
  bool flips = false;
  for (Piece& piece : transfer.pieces) {
    if (is_extra(piece.kind)) {
      spilled_extra(record, piece);
      continue;
    }
    entry_of(next, piece.kind).blob = piece.blob;
    flips = true;
  }
  if (!flips) return end_transfer(model);
  transfer.storing = true;
  if (before_manifest_) before_manifest_(model);
  store::Batch batch;
  batch.put(kManifestTable, model.value, kManifestSubkey, encode_manifest(next));
  store_.write(std::make_shared<const store::Batch>(std::move(batch)),
               [this, model](const Status& stored) { spill_stored(model, stored); });
}

void ChunkStateManager::spilled_extra(ModelRecord& record, Piece& piece) {
  host_.give_back(piece.host);
  if (piece.dropped) return remove_blob(piece.blob);
  const bool gradients = piece.kind == SegmentKind::kGradients;
  (gradients ? record.gradients : record.kv->host).clear();
  (gradients ? record.gradients_blob : record.kv->blob) = piece.blob;
}

void ChunkStateManager::spill_stored(ModelId model, const Status& status) {
  Transfer& transfer = transfers_.at(model);
  for (const Piece& piece : transfer.pieces) {
    if (is_extra(piece.kind) || transfer.orphan) continue;
    ModelRecord& record = at(model);
    if (!status.ok()) {
      record.in_doubt = true;
      record.doubtful_blobs.push_back(piece.blob);
      continue;
    }
    Manifest::Entry& entry = entry_of(record.manifest, piece.kind);
    entry.blob = piece.blob;
    host_.give_back(entry.host);
    entry.host.clear();
  }
  if (!status.ok() && !requests_.empty()) {
    requests_.front().failed.insert(model);
    requests_.front().why = status.within("model " + std::to_string(model.value) + ": spill");
  }
  end_transfer(model);
}

// Nothing has changed but that time was lost. Also when the model was removed meanwhile.
void ChunkStateManager::spill_failed(ModelId model, const Status& status) {
  Transfer& transfer = transfers_.at(model);
  for (const Piece& piece : transfer.pieces) {
    if (piece.copied) {
      remove_blob(piece.blob);
    } else {
      disk_->forget(piece.blob);
    }
    if (piece.dropped) host_.give_back(piece.host);
  }
  if (!status.ok() && !transfer.orphan) {
    PLEXRL_LOG(kWarning, "spill: %s", status.to_string().c_str());
    for (Request& request : requests_) {
      request.failed.insert(model);
      request.why = status;
    }
  }
  end_transfer(model);
}

// ---- prefetch ----

void ChunkStateManager::prefetch() {
  if (disk_ == nullptr || !expected_ || disk_->used() == 0) return;
  if (!requests_.empty() || !transfers_.empty()) return;
  for (const ModelId model : expected_()) {
    const auto found = models_.find(model);
    if (found == models_.end() || not_prefetched_.contains(model)) continue;
    const ModelRecord& record = found->second;
    if (record.tier != Tier::kParked || !record.at_rest() || record.unreadable) continue;
    if (to_fetch(record).empty()) continue;
    requests_.push_back({model, Need::kResume, true, {}, {}, {}});
    return pump();
  }
}

}  // namespace plexrl::state
