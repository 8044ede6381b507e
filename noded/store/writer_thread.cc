// SPDX-License-Identifier: Apache-2.0
#include "store/writer_thread.h"

#include <system_error>

#include "store/quiet_thread.h"

namespace plexrl::store {

Result<std::unique_ptr<WriterThread>> WriterThread::start(WriteQueue& queue) {
  std::unique_ptr<WriterThread> writer(new WriterThread(queue));
  try {
    writer->thread_ = start_quiet_thread([&queue] {
      while (queue.wait_for_work()) (void)queue.write_group();
    });
  } catch (const std::system_error& e) {
    return error(Code::INTERNAL, "the thread that writes the store: %s", e.what());
  }
  ::pthread_setname_np(writer->thread_.native_handle(), "px-store");
  return writer;
}

WriterThread::~WriterThread() {
  queue_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace plexrl::store
