// SPDX-License-Identifier: Apache-2.0
// BlobTransfer: one blob's way into its file or out of it, with kBlobQueueDepth pieces under way.
// write and read block; for the store's threads. What control says may come from any thread.
#pragma once

#include <atomic>
#include <vector>

#include "base/unique_fd.h"
#include "store/blob_format.h"
#include "store/io_queue.h"
#include "store/spare_files.h"

namespace plexrl::store {

struct TransferControl {
  std::atomic<bool> cancelled{false};
  std::atomic<std::uint64_t> moved{0};  // bytes
};

class BlobTransfer {
 public:
  struct Freed {
    void operator()(std::byte* at) const noexcept;
  };
  using AlignedBytes = std::unique_ptr<std::byte, Freed>;

  // All outlive it. `direct`: files are opened with O_DIRECT.
  BlobTransfer(IoQueue& queue, int directory, bool direct, const BlobRequest& request,
               TransferControl& control);

  // As BlobStore::write and read, without the label.
  [[nodiscard]] Status write(SpareFiles& spares);
  [[nodiscard]] Status read();

  // A read in steps, of a blob of one chunk, for a thread that may not block. After an error
  // nothing was begun; UNAVAILABLE: only who may block can open the file.
  [[nodiscard]] Status begin_read();
  // What the queue has completed; false when that was the last of it.
  [[nodiscard]] bool go_on(const IoCompletion& done);
  // After that.
  [[nodiscard]] Status end_read();

 private:
  // A piece of the file that is under way: a chunk or a part of one, which is mapped, or behind the
  // last the footer. A read of the last takes the footer along: one command of the disk less.
  struct Slot {
    std::byte* at = nullptr;
    std::uint64_t piece = 0;
    std::uint64_t offset = 0;  // in the file
    std::size_t moved = 0;
    std::size_t bytes = 0;         // at `at`
    std::size_t footer_bytes = 0;  // behind them
    [[nodiscard]] std::size_t all() const { return bytes + footer_bytes; }
  };
  [[nodiscard]] Status fill(int fd);
  enum class Wait : bool { kNo, kYes };
  [[nodiscard]] Status open_to_read(Wait wait);
  [[nodiscard]] Status check_read();
  [[nodiscard]] Status all_pieces(IoRequest::Kind kind, int fd);
  [[nodiscard]] Status start(IoRequest::Kind kind, int fd, std::size_t slot, std::uint64_t piece);
  void sum_started();
  [[nodiscard]] Status write_footer(int fd, std::size_t slot);
  [[nodiscard]] Status submit(IoRequest::Kind kind, int fd, std::size_t slot);
  [[nodiscard]] bool advance(IoRequest::Kind kind, int fd, const IoCompletion& done,
                             Status* status);
  void end(IoRequest::Kind kind, const Slot& piece);
  void cut_into(std::size_t piece_bytes);
  [[nodiscard]] std::size_t bytes_of(std::uint64_t piece) const;   // without padding
  [[nodiscard]] std::size_t padded_of(std::uint64_t piece) const;  // what is read and written
  [[nodiscard]] std::uint32_t sum_of_chunk(std::uint64_t chunk) const;

  IoQueue& queue_;
  int directory_;
  bool direct_;
  const BlobRequest& request_;
  TransferControl& control_;
  BlobShape shape_;
  UniqueFd file_;  // that is read
  AlignedBytes footer_;
  std::size_t piece_bytes_ = kBlobChunkBytes;
  std::uint64_t pieces_ = 0;         // the footer apart
  std::vector<std::uint32_t> sums_;  // of the pieces that were written or read
  std::vector<Slot> slots_;
  std::vector<std::size_t> unsummed_;  // slots of pieces that are being written
  Status status_;                      // the first error of a read in steps
};

}  // namespace plexrl::store
