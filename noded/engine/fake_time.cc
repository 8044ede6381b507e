// SPDX-License-Identifier: Apache-2.0
#include "engine/fake_time.h"

#include "base/check.h"
#include "loop/event_loop.h"

namespace plexrl::engine {
namespace {

class LoopAlarm final : public FakeTime::Alarm {
 public:
  explicit LoopAlarm(loop::Timer timer) : timer_(std::move(timer)) {}

 private:
  loop::Timer timer_;
};

class LoopTime final : public FakeTime {
 public:
  explicit LoopTime(loop::EventLoop& loop) : loop_(loop) {}
  [[nodiscard]] TimePoint now() const override { return system_clock().now(); }
  void post(std::function<void()> callback) override { loop_.post(std::move(callback)); }
  std::unique_ptr<Alarm> call_at(TimePoint when, std::function<void()> callback) override {
    auto timer = loop_.make_timer(std::move(callback));
    PLEXRL_CHECK(timer.has_value(), "the loop has no timer left");
    timer->arm(when);
    return std::make_unique<LoopAlarm>(std::move(timer).value());
  }

 private:
  loop::EventLoop& loop_;
};

}  // namespace

std::unique_ptr<FakeTime> make_loop_time(loop::EventLoop& loop) {
  return std::make_unique<LoopTime>(loop);
}

}  // namespace plexrl::engine
