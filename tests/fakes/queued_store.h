// SPDX-License-Identifier: Apache-2.0
// A WriteQueue without a thread or a loop: what is written reaches the store underneath, and is
// told, when the test says so.
#pragma once

#include <utility>
#include <vector>

#include "store/write_queue.h"

namespace plexrl::store {

class QueuedStore {
 public:
  explicit QueuedStore(StateStore& below)
      : queue(below,
              [this](std::function<void()> callback) { posted_.push_back(std::move(callback)); }) {}

  void tell() {
    while (!posted_.empty())
      for (auto& callback : std::exchange(posted_, {})) callback();
  }
  // Everything that waits, and what follows from it.
  void run() {
    while (queue.write_group() || !posted_.empty()) tell();
  }

 private:
  std::vector<std::function<void()>> posted_;

 public:
  WriteQueue queue;
};

}  // namespace plexrl::store
