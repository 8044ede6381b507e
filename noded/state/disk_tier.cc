// SPDX-License-Identifier: Apache-2.0
#include "state/disk_tier.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "state/model_record.h"

namespace plexrl::state {

bool DiskTier::adopt(BlobId blob, std::uint64_t chunks) {
  last_ = std::max(last_, blob.value);
  const auto& there = options_.blobs->blobs();
  if (!std::binary_search(there.begin(), there.end(), blob)) return false;
  if (!room_.emplace(blob, chunks).second) return false;
  used_ += chunks;
  return true;
}

void DiskTier::sweep() {
  std::vector<BlobId> nobodys;
  for (const BlobId blob : options_.blobs->blobs()) {
    last_ = std::max(last_, blob.value);
    if (!room_.contains(blob)) nobodys.push_back(blob);
  }
  if (!nobodys.empty())
    PLEXRL_LOG(kInfo, "disk tier: %zu blobs that no manifest names are removed", nobodys.size());
  for (const BlobId blob : nobodys) remove(blob, [] {});
}

BlobId DiskTier::add(std::uint64_t chunks) {
  const BlobId blob{++last_};
  room_.emplace(blob, chunks);
  used_ += chunks;
  return blob;
}

void DiskTier::forget(BlobId blob) {
  const auto found = room_.find(blob);
  if (found == room_.end()) return;
  used_ -= found->second;
  room_.erase(found);
}

// A blob that cannot be removed keeps its room until the next start.
void DiskTier::remove(BlobId blob, std::function<void()> over) {
  ++removals_;
  options_.blobs->remove(blob, [this, blob, over = std::move(over)](const Status& status) {
    --removals_;
    if (status.ok()) forget(blob);
    over();
  });
}

void DiskTier::start(ModelId model, Transfer& transfer, store::BlobStore::Done done) {
  const Piece& piece = transfer.pieces.at(transfer.at);
  store::BlobRequest request;
  request.blob = piece.blob;
  request.bytes = piece.bytes;
  request.label = "model " + std::to_string(model.value) + ": segment " + kind_name(piece.kind);
  request.memory = options_.memory(piece.host);
  transfer.io = transfer.fetch ? options_.blobs->read(std::move(request), std::move(done))
                               : options_.blobs->write(std::move(request), std::move(done));
}

}  // namespace plexrl::state
