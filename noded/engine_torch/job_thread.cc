// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/job_thread.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace plexrl::worker {

Status Inbox::open() {
  wakeup_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup_) return errno_error(Code::IO, errno, "eventfd");
  return {};
}

void Inbox::post(Task task) {
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  const std::uint64_t one = 1;
  // Fails only when 2^64 - 2 wake-ups are pending, and then the poller is awake anyway.
  static_cast<void>(!::write(wakeup_.get(), &one, sizeof one));
}

void Inbox::run_all() {
  std::uint64_t count = 0;
  static_cast<void>(!::read(wakeup_.get(), &count, sizeof count));
  std::deque<Task> tasks;
  {
    const std::scoped_lock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const Task& task : tasks) task();
}

JobThread::JobThread(const char* name) : thread_([this] { loop(); }) {
  ::pthread_setname_np(thread_.native_handle(), name);
}

JobThread::~JobThread() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void JobThread::submit(Task job) {
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void JobThread::loop() {
  for (;;) {
    Task job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace plexrl::worker
