// SPDX-License-Identifier: Apache-2.0
// A thread that never takes a signal: those are for the loop's thread.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace plexrl::store {

template <class Work>
[[nodiscard]] std::thread start_quiet_thread(Work work) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace plexrl::store
