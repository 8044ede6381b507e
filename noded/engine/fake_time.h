// SPDX-License-Identifier: Apache-2.0
// FakeTime: where a fake engine takes its time and its turns from: the event loop in plexrld
// --fake-engine and in most tests, a virtual clock where whole schedules are tested. Loop thread
// only.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"

namespace plexrl::loop {
class EventLoop;
}

namespace plexrl::engine {

class FakeTime {
 public:
  // A call that is to come; destroying it, also from inside the call, takes it back.
  class Alarm {
   public:
    virtual ~Alarm() = default;
  };

  virtual ~FakeTime() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
  // Later, never from inside the call, in the order of the calls.
  virtual void post(std::function<void()> callback) = 0;
  // Once, at `when` or soon after.
  [[nodiscard]] virtual std::unique_ptr<Alarm> call_at(TimePoint when,
                                                       std::function<void()> callback) = 0;
};

// The system's clock and the loop, which must live longer.
[[nodiscard]] std::unique_ptr<FakeTime> make_loop_time(loop::EventLoop& loop);

}  // namespace plexrl::engine
