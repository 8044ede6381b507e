// SPDX-License-Identifier: Apache-2.0
// EventQueue: what is to come, in virtual time. Of equal times the one that was added first.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "base/clock.h"

namespace plexrl::sim {

struct SimEvent {
  enum class Kind : std::uint8_t { kArrival, kTick, kOpEnds, kOpYields, kMoveEnds, kTimer };
  TimePoint at{};
  std::uint64_t order = 0;  // set by the queue
  Kind kind = Kind::kTick;
  std::uint64_t subject = 0;  // group; job for kTimer
  std::uint64_t number = 0;   // op, model, or what the timer is for
  std::uint64_t version = 0;  // events of an earlier life are dropped by their receiver
};

class EventQueue {
 public:
  void add(SimEvent event) {
    event.order = ++last_;
    events_.push(event);
  }
  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] std::size_t size() const { return events_.size(); }
  [[nodiscard]] SimEvent take() {
    const SimEvent first = events_.top();
    events_.pop();
    return first;
  }

 private:
  struct Later {
    bool operator()(const SimEvent& a, const SimEvent& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<SimEvent, std::vector<SimEvent>, Later> events_;
  std::uint64_t last_ = 0;
};

}  // namespace plexrl::sim
