// SPDX-License-Identifier: Apache-2.0
#include "store/memory_blob_store.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "store/blob_format.h"

namespace plexrl::store {
namespace {

using Verb = MemoryDisk::Verb;

Status store_blob(MemoryDisk& disk, const BlobRequest& request) {
  if (disk.blobs.contains(request.blob)) return error(Code::EXISTS, "there is one already");
  std::uint64_t used = 0;
  for (const auto& [id, blob] : disk.blobs) used += blob.bytes.size();
  if (request.bytes > disk.room_bytes - std::min(used, disk.room_bytes))
    return error(Code::NO_CAPACITY, "no space left");
  const BlobShape shape(request.bytes);
  MemoryDisk::Blob blob;
  for (std::uint64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const std::size_t bytes = shape.chunk_bytes(chunk);
    PLEXRL_ASSIGN(std::byte* const at,
                  request.memory->map(chunk * kBlobChunkBytes, bytes, BlobMemory::Access::kRead));
    blob.bytes.insert(blob.bytes.end(), at, at + bytes);
    blob.sums.push_back(crc32c(at, bytes));
    request.memory->unmap(at, bytes);
  }
  disk.blobs.emplace(request.blob, std::move(blob));
  return {};
}

Status load_blob(const MemoryDisk& disk, const BlobRequest& request) {
  const auto found = disk.blobs.find(request.blob);
  if (found == disk.blobs.end()) return error(Code::NOT_FOUND, "there is none");
  const MemoryDisk::Blob& blob = found->second;
  const BlobShape shape(request.bytes);
  if (blob.bytes.size() != request.bytes)
    return error(Code::CORRUPT, "has %zu bytes, not %" PRIu64, blob.bytes.size(), request.bytes);
  for (std::uint64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const std::size_t bytes = shape.chunk_bytes(chunk);
    const std::byte* const from = blob.bytes.data() + chunk * kBlobChunkBytes;
    PLEXRL_ASSIGN(std::byte* const at,
                  request.memory->map(chunk * kBlobChunkBytes, bytes, BlobMemory::Access::kWrite));
    std::memcpy(at, from, bytes);
    request.memory->unmap(at, bytes);
    if (crc32c(from, bytes) != blob.sums[chunk])
      return error(Code::CORRUPT, "chunk %" PRIu64 ": checksum", chunk);
  }
  return request.memory->filled(request.bytes);
}

class MemoryBlobStore final : public BlobStore {
 public:
  MemoryBlobStore(std::shared_ptr<MemoryDisk> disk, Post post) : post_(std::move(post)) {
    callers_->disk = std::move(disk);
    for (const auto& [id, blob] : callers_->disk->blobs) blobs_.push_back(id);
  }
  MemoryBlobStore(const MemoryBlobStore&) = delete;
  MemoryBlobStore& operator=(const MemoryBlobStore&) = delete;
  ~MemoryBlobStore() override { callers_->open = false; }

  TransferId write(BlobRequest request, Done done) override {
    return add(Verb::kWrite, std::move(request), std::move(done));
  }
  TransferId read(BlobRequest request, Done done) override {
    return add(Verb::kRead, std::move(request), std::move(done));
  }
  void remove(BlobId blob, Done done) override {
    BlobRequest request;
    request.blob = blob;
    add(Verb::kRemove, std::move(request), std::move(done));
  }
  void cancel(TransferId transfer) override {
    if (callers_->under_way.contains(transfer)) callers_->cancelled.insert(transfer);
  }
  [[nodiscard]] std::uint64_t progress(TransferId) const override { return 0; }
  [[nodiscard]] const std::vector<BlobId>& blobs() const override { return blobs_; }
  [[nodiscard]] const std::string& method() const override { return method_; }

 private:
  struct Callers {
    bool open = true;
    std::shared_ptr<MemoryDisk> disk;
    std::set<TransferId> under_way;
    std::set<TransferId> cancelled;
  };

  static Status carry_out(Callers& callers, TransferId id, Verb verb, const BlobRequest& request) {
    MemoryDisk& disk = *callers.disk;
    callers.under_way.erase(id);
    if (callers.cancelled.erase(id) != 0) return error(Code::CANCELLED, "given up");
    PLEXRL_TRY(disk.fault(verb, request.blob));
    if (verb == Verb::kWrite) return store_blob(disk, request);
    if (verb == Verb::kRead) return load_blob(disk, request);
    disk.blobs.erase(request.blob);
    return {};
  }

  TransferId add(Verb verb, BlobRequest request, Done done) {
    const TransferId id{++last_transfer_};
    callers_->under_way.insert(id);
    post_([callers = callers_, id, verb, request = std::move(request), done = std::move(done)] {
      if (!callers->open) return;
      const std::string label = request.label.empty() ? "" : request.label + ": ";
      const std::string blob = "blob " + std::to_string(request.blob.value);
      done(carry_out(*callers, id, verb, request).within(label + blob));
    });
    return id;
  }

  Post post_;
  std::shared_ptr<Callers> callers_ = std::make_shared<Callers>();
  std::vector<BlobId> blobs_;
  std::string method_ = "memory";
  std::uint64_t last_transfer_ = 0;
};

}  // namespace

std::unique_ptr<BlobStore> make_memory_blob_store(std::shared_ptr<MemoryDisk> disk,
                                                  BlobStore::Post post) {
  return std::make_unique<MemoryBlobStore>(std::move(disk), std::move(post));
}

}  // namespace plexrl::store
