// SPDX-License-Identifier: Apache-2.0
// Inbox and JobThread: how the engine's threads talk. The protocol thread submits a job to a
// JobThread; the job posts what follows from it to the Inbox, which the protocol thread polls.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::worker {

using Task = std::function<void()>;

class Inbox {
 public:
  // IO when the kernel gives no eventfd.
  [[nodiscard]] Status open();
  [[nodiscard]] int fd() const noexcept { return wakeup_.get(); }
  void post(Task task);  // any thread
  void run_all();        // the polling thread

 private:
  UniqueFd wakeup_;
  std::mutex mutex_;
  std::deque<Task> tasks_;  // bounded: at most one per op and move under way
};

class JobThread {
 public:
  explicit JobThread(const char* name);  // at most 15 characters, seen in top(1)
  ~JobThread();                          // finishes the job under way, drops the others
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;
  void submit(Task job);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace plexrl::worker
