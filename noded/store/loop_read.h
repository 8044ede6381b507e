// SPDX-License-Identifier: Apache-2.0
// LoopRead: a read of one chunk, begun and ended by the thread that asks for it. A change of
// threads costs 30 to 65 us each way on an idle machine and a turn of the scheduler on a busy one,
// beside 0.7 ms of the disk; this needs as many as the bare read, one. It takes that thread about
// 0.1 ms for each (opening, handing it to the kernel, checksum), so large blobs are left to the
// store's own thread. One thread.
#pragma once

#include <memory>
#include <optional>

#include "base/unique_fd.h"
#include "store/blob_transfer.h"

namespace plexrl::store {

class LoopRead {
 public:
  // `queue` has an fd().
  explicit LoopRead(std::unique_ptr<IoQueue> queue) : queue_(std::move(queue)) {}
  // Waits for what is under way: the kernel writes to its memory.
  ~LoopRead();
  LoopRead(const LoopRead&) = delete;
  LoopRead& operator=(const LoopRead&) = delete;

  [[nodiscard]] int fd() const { return queue_->fd(); }
  [[nodiscard]] bool busy() const { return transfer_ != nullptr; }
  // False: nothing was begun, and somebody else has to read it, or to say why it cannot be read.
  // `request` and `control` stay until it is over. Not while busy.
  [[nodiscard]] bool begin(int directory, bool direct, const BlobRequest& request,
                           TransferControl& control);
  // When fd() is readable. The outcome, when it is over; as BlobStore::read, without the label.
  [[nodiscard]] std::optional<Status> go_on();

 private:
  std::unique_ptr<IoQueue> queue_;
  std::unique_ptr<BlobTransfer> transfer_;
};

}  // namespace plexrl::store
