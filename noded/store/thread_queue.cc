// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "store/io_queue.h"
#include "store/quiet_thread.h"

namespace plexrl::store {
namespace {

class ThreadQueue final : public IoQueue {
 public:
  explicit ThreadQueue(unsigned depth) {
    for (unsigned i = 0; i < depth; ++i) threads_.push_back(start_quiet_thread([this] { work(); }));
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wanted_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Status submit(const IoRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    wanted_.notify_one();
    return {};
  }

  IoCompletion wait() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return !completions_.empty(); });
    const IoCompletion done = completions_.front();
    completions_.pop_front();
    return done;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wanted_.wait(lock, [this] { return closing_ || !requests_.empty(); });
      if (requests_.empty()) return;
      const IoRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const std::int64_t result = carry_out(request);
      lock.lock();
      completions_.push_back({request.tag, result});
      ended_.notify_one();
    }
  }

  static std::int64_t carry_out(const IoRequest& request) {
    const auto offset = static_cast<off_t>(request.offset);
    iovec parts[2];
    const int count = static_cast<int>(io_parts(request, parts));
    ssize_t moved = 0;
    do {
      moved = request.kind == IoRequest::Kind::kRead ? ::preadv(request.fd, parts, count, offset)
                                                     : ::pwritev(request.fd, parts, count, offset);
    } while (moved < 0 && errno == EINTR);
    return moved < 0 ? -errno : moved;
  }

  std::mutex mutex_;
  std::condition_variable wanted_;
  std::condition_variable ended_;
  std::deque<IoRequest> requests_;
  std::deque<IoCompletion> completions_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoQueue> make_thread_queue(unsigned depth) {
  return std::make_unique<ThreadQueue>(depth);
}

}  // namespace plexrl::store
