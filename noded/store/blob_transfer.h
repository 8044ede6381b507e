// SPDX-License-Identifier: Apache-2.0
// BlobTransfer: one blob's way into its file or out of it, with kBlobQueueDepth chunks under way.
// Blocks; for the store's threads. What control says may come from any thread.
#pragma once

#include <atomic>
#include <vector>

#include "base/unique_fd.h"
#include "store/blob_format.h"
#include "store/io_queue.h"

namespace plexrl::store {

struct TransferControl {
  std::atomic<bool> cancelled{false};
  std::atomic<std::uint64_t> moved{0};  // bytes
};

class BlobTransfer {
 public:
  // All outlive it. `direct`: files are opened with O_DIRECT.
  BlobTransfer(IoQueue& queue, int directory, bool direct, const BlobRequest& request,
               TransferControl& control);

  // As BlobStore::write and read, without the label.
  [[nodiscard]] Status write();
  [[nodiscard]] Status read();

 private:
  // A chunk that is mapped and under way.
  struct Slot {
    std::byte* at = nullptr;
    std::uint64_t chunk = 0;
    std::size_t moved = 0;
    std::size_t bytes = 0;
  };
  [[nodiscard]] Status fill(int fd);
  [[nodiscard]] Status open_to_read(UniqueFd* file) const;
  [[nodiscard]] Status all_chunks(IoRequest::Kind kind, int fd);
  [[nodiscard]] Status start(IoRequest::Kind kind, int fd, std::size_t slot, std::uint64_t chunk);
  [[nodiscard]] Status submit(IoRequest::Kind kind, int fd, std::size_t slot);
  [[nodiscard]] bool advance(IoRequest::Kind kind, int fd, const IoCompletion& done,
                             Status* status);
  [[nodiscard]] Status end(IoRequest::Kind kind, const Slot& slot);
  [[nodiscard]] Status footer(IoRequest::Kind kind, int fd, std::byte* data);

  IoQueue& queue_;
  int directory_;
  bool direct_;
  const BlobRequest& request_;
  TransferControl& control_;
  BlobShape shape_;
  std::vector<std::uint32_t> sums_;
  std::vector<Slot> slots_;
};

}  // namespace plexrl::store
