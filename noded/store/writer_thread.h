// SPDX-License-Identifier: Apache-2.0
// WriterThread: carries out a WriteQueue's groups, one after the other, so that the loop does not
// wait for the disk. It ends when the queue is empty.
#pragma once

#include <memory>
#include <thread>

#include "store/write_queue.h"

namespace plexrl::store {

class WriterThread {
 public:
  // INTERNAL: no thread. The queue outlives it.
  [[nodiscard]] static Result<std::unique_ptr<WriterThread>> start(WriteQueue& queue);
  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;
  ~WriterThread();  // waits until everything that was written is on disk

 private:
  explicit WriterThread(WriteQueue& queue) : queue_(queue) {}
  WriteQueue& queue_;
  std::thread thread_;
};

}  // namespace plexrl::store
