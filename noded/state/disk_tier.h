// SPDX-License-Identifier: Apache-2.0
// DiskTier: what the disk tier holds of segments: the numbers and the room of its blobs, and the
// segments that are on their way to it or from it. Knows nothing of models' manifests. Loop thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "state/segment.h"
#include "store/blob_store.h"

namespace plexrl::state {

struct DiskOptions {
  store::BlobStore* blobs = nullptr;  // null: there is no disk tier
  // The host pool's memory in these chunks, for the blob store's threads.
  std::function<std::shared_ptr<store::BlobMemory>(const Chunks&)> memory;
  std::function<void(std::function<void()>)> post;  // runs it later on the loop (EventLoop::post)
  std::uint32_t chunks = 0;                         // capacity, in chunks of the host pool
  std::uint32_t kv_chunks = 0;                      // largest KV that is parked
};

// A segment that is copied between host chunks and a blob.
struct Piece {
  SegmentKind kind = SegmentKind::kWeights;
  std::uint64_t bytes = 0;
  Chunks host;
  BlobId blob;
  bool copied = false;
  bool dropped = false;  // given up meanwhile by whom it belonged to
};

// The pieces of one model, one after the other.
struct Transfer {
  bool fetch = false;  // from the blobs; else to them
  std::vector<Piece> pieces;
  std::size_t at = 0;
  store::TransferId io;
  bool storing = false;             // all are copied, the manifest is on its way to the disk
  bool orphan = false;              // the model was removed meanwhile
  std::function<void()> when_over;  // may be empty
};

class DiskTier {
 public:
  explicit DiskTier(DiskOptions options) : options_(std::move(options)) {}

  // At the start: the blobs that manifests name, with their room. False: there is no such blob.
  [[nodiscard]] bool adopt(BlobId blob, std::uint64_t chunks);
  // Those that nobody adopted are removed.
  void sweep();

  [[nodiscard]] std::uint64_t chunks() const { return options_.chunks; }
  [[nodiscard]] std::uint64_t used() const { return used_; }  // what is being removed, too
  [[nodiscard]] bool fits(std::uint64_t chunks) const {
    return used_ <= options_.chunks && chunks <= options_.chunks - used_;
  }
  [[nodiscard]] bool removing() const { return removals_ > 0; }
  [[nodiscard]] std::uint64_t kv_chunks() const { return options_.kv_chunks; }
  [[nodiscard]] const std::string& method() const { return options_.blobs->method(); }
  [[nodiscard]] std::uint64_t progress(store::TransferId io) const {
    return options_.blobs->progress(io);
  }

  // A new number, with room for the segment.
  [[nodiscard]] BlobId add(std::uint64_t chunks);
  // `over`: its room is free.
  void remove(BlobId blob, std::function<void()> over);
  // Nothing of it was left by a write that failed.
  void forget(BlobId blob);

  // Copies transfer.pieces[transfer.at].
  void start(ModelId model, Transfer& transfer, store::BlobStore::Done done);
  void cancel(const Transfer& transfer) { options_.blobs->cancel(transfer.io); }
  void post(std::function<void()> callback) { options_.post(std::move(callback)); }

 private:
  DiskOptions options_;
  std::map<BlobId, std::uint64_t> room_;  // chunks
  std::uint64_t used_ = 0;
  std::uint64_t last_ = 0;
  unsigned removals_ = 0;
};

}  // namespace plexrl::state
