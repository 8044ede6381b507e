// SPDX-License-Identifier: Apache-2.0
// BlobStore: the disk tier's files. A blob is the bytes of one segment, whole or absent, never
// changed in place. doc/state.md has the format. Files with O_DIRECT through io_uring in the
// daemon, memory with faults on demand in tests; one conformance suite.
//
// One thread calls it (the daemon's loop thread) and gets the completions there, through `post`,
// never from inside a call. The work is done by the store's own threads: reads in one line, writes
// and removals in another, each in the order of the calls. Small reads may be begun and ended by
// the caller's thread instead, which does not wait for the disk. Bounded: kBlobQueueDepth chunks of
// a line are mapped and under way at once; the caller bounds the number of its requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/strong_id.h"

namespace plexrl::store {

using TransferId = StrongId<struct TransferTag>;

// The unit of checksums and of writes.
inline constexpr std::size_t kBlobChunkBytes = std::size_t{1} << 20;
// The unit of reads of more than one chunk: one is summed while the next ones come in.
inline constexpr std::size_t kBlobReadBytes = kBlobChunkBytes / 2;
inline constexpr std::size_t kBlobAlignment = 4096;
inline constexpr unsigned kBlobQueueDepth = 16;
inline constexpr std::uint64_t kMaxBlobBytes = std::uint64_t{1} << 42;

// The memory that a blob is written from or read into. Used by the store's threads or the caller's
// from the call to the completion, by one thread at a time; its contents may not be changed
// meanwhile by others.
class BlobMemory {
 public:
  enum class Access : bool { kRead, kWrite };
  virtual ~BlobMemory() = default;
  // Bytes [offset, offset + bytes) of the blob, at an address that is a multiple of kBlobAlignment.
  // `offset` is a multiple of kBlobReadBytes. What follows up to the next multiple of
  // kBlobAlignment must be accessible too: it is written and read along.
  [[nodiscard]] virtual Result<std::byte*> map(std::uint64_t offset, std::size_t bytes,
                                               Access access) = 0;
  virtual void unmap(std::byte* at, std::size_t bytes) = 0;  // as it was mapped
  // A blob of so many bytes was read into it, and nothing is mapped any more.
  [[nodiscard]] virtual Status filled(std::uint64_t /*bytes*/) { return {}; }
};

struct BlobRequest {
  BlobId blob;
  std::uint64_t bytes = 0;  // of the blob; a read of one that has another size is CORRUPT
  std::string label;        // "model 7: segment weights", in front of every error text
  std::shared_ptr<BlobMemory> memory;
};

class BlobStore {
 public:
  using Done = std::function<void(const Status&)>;
  // Runs callbacks on the caller's thread, in order; callable from any thread (EventLoop::post).
  using Post = std::function<void(std::function<void()>)>;

  // Gives up what is under way, waits for its threads; no completion is called afterwards.
  virtual ~BlobStore() = default;

  // Ok: the blob is complete and durable. On any error nothing of it is left. NO_CAPACITY: the
  // disk is full. EXISTS: there is one of that number. IO: what the operating system said.
  virtual TransferId write(BlobRequest request, Done done) = 0;
  // CORRUPT: damaged, truncated or of another size; the text names blob and chunk, and the memory's
  // contents are not to be used. NOT_FOUND: there is none. IO: it may succeed later.
  virtual TransferId read(BlobRequest request, Done done) = 0;
  // CANCELLED follows, unless the transfer ended already; nothing is left of a cancelled write.
  virtual void cancel(TransferId transfer) = 0;
  // Bytes moved so far; 0 for one that is over.
  [[nodiscard]] virtual std::uint64_t progress(TransferId transfer) const = 0;
  // Also of a missing blob; not of one that is being read. What cannot be removed is logged and
  // found by blobs() at the next start. The completion comes when the room is free.
  virtual void remove(BlobId blob, Done done) = 0;
  // The blobs that the store had when it was opened.
  [[nodiscard]] virtual const std::vector<BlobId>& blobs() const = 0;
  // How it works, for people: "O_DIRECT, io_uring".
  [[nodiscard]] virtual const std::string& method() const = 0;
};

struct BlobStoreOptions {
  std::string directory;  // made, mode 0700, when only the last part is missing
  bool io_uring = true;   // false: threads with pread and pwrite, as where io_uring is refused
  // Calls `ready` on the caller's thread whenever `fd` is readable, as long as what it gives lives
  // (EventLoop::watch_io). Null: all reads are done by the store's thread, also after an error.
  using Watch = std::function<Result<std::shared_ptr<void>>(int fd, std::function<void()> ready)>;
  Watch watch = nullptr;
};
// Removes what a crash left behind. PERMISSION: the directory is somebody else's or others may
// write to it. BUSY: another process has it.
[[nodiscard]] Result<std::unique_ptr<BlobStore>> open_file_blob_store(
    const BlobStoreOptions& options, BlobStore::Post post);

}  // namespace plexrl::store
